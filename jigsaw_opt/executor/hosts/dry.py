"""A job that only sleeps: as long as the plan says, in its order, by the clock of all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import torch.distributed as dist

from jigsaw_opt.executor.exchange.by_bucket import GradientExchange
from jigsaw_opt.executor.hosts.host import Host, HostSetting, Turn
from jigsaw_opt.executor.schedules.order import RowStep, TransferKey
from jigsaw_opt.executor.schedules.records import RunRecord
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import TimedIteration
from jigsaw_opt.problem.task_graph import Edge


class DryHost(Host):
    """What a process has of a job that only sleeps, and in its place what would train; fields as of the base class."""

    def __init__(self, setting: HostSetting, job: int, number: int, exchange: GradientExchange | None) -> None:
        super().__init__(setting, job, number, exchange)
        assert setting.connect is not None, "jobs tell through it what has ended"
        self.worker, self.number, self.iteration, self._setting = self, number, 0, setting
        self._group = None if exchange is None else exchange.group
        self._pool = self._ending.enter_context(ThreadPoolExecutor(1))
        self._store = setting.connect()
        if (schedule := setting.schedule_of(job)) is not None:
            self._schedule, self._shape = schedule, setting.request.instance.task_graph_of[job]
            self._before = defaultdict[str, list[Edge]](list)
            for edge in self._shape.edges:
                self._before[edge.after].append(edge)
        self._open = defaultdict[int, list[RunRecord]](list)

    @classmethod
    def takes(cls, setting: HostSetting, job: int) -> bool:
        """Return whether the run is a dry one."""
        return setting.request.dry

    def prepare(self, times: int, levels: Sequence[tuple[int, ...]]) -> None:
        """Do nothing, since nothing is built."""

    def run(self, step: RowStep, turn: Turn) -> None:
        """Sleep through a block with its transfers, or through a pass."""
        turn.clock.wait_until(turn.start(step))
        (self._pass if step.action else self._block)(step, turn)

    def _block(self, step: RowStep, turn: Turn) -> None:
        """Sleep through a block, whose transfers begin as soon as it gets to their buckets."""
        job, clock, starts = turn.order.jobs[step.job], turn.clock, turn.transfer_starts(step)
        instance = self._setting.request.instance
        asked, server = instance.jobs[self.job], job.gpus[step.place].rpartition("/")[0]
        assert isinstance(asked, Job), "it is data-parallel"
        gpu_type = next(each.gpu_type for each in instance.cluster.servers if each.name == server)
        start, until_us = clock.now(), asked.block_us(instance.models[asked.model].block_us(gpu_type))
        for bucket, transfer in enumerate(_planned(step, turn).transfers, 1):
            clock.wait_until(start + until_us[min(bucket, step.level) - 1])
            key, length = TransferKey(step.job, step.iteration, bucket), transfer.end_us - transfer.start_us
            self._sent.append(self._pool.submit(self._transfer, key, length, starts[bucket - 1], turn))
        clock.wait_until(start + until_us[step.level - 1])
        self.records.append(RunRecord("block", *step[1:4], start, clock.now(), step.level, 0.0))
        self.iteration += 1

    def _transfer(self, key: TransferKey, length_us: int, earliest: int, turn: Turn) -> None:
        """Meet all workers of the job once the links are free, and sleep through a transfer."""
        turn.link_order.wait(key, self._store)
        turn.clock.wait_until(earliest)
        start = turn.clock.now()
        dist.barrier(self._group)
        turn.clock.wait_until(turn.clock.now() + length_us)
        self.records.append(RunRecord("transfer", *key, start, turn.clock.now()))
        turn.link_order.end(key, self._store)

    def _pass(self, step: RowStep, turn: Turn) -> None:
        """Sleep through an operation once all is there that it takes, and tell the others that it has ended."""
        clock = turn.clock
        times = zip(self._shape.operations, _planned(step, turn).operations, strict=True)
        lengths = {name: at.end_us - at.start_us for name, at in times}
        planned = self._schedule.planned_in(step.iteration)
        ranks = (self._schedule.actions_of(rank, step.iteration) for rank in range(self._schedule.processes))
        taking_part = Counter(planned[action] for actions in ranks for action in actions)
        own, begin = planned[step.action], clock.now()
        come = begin
        for edge in self._before[own]:
            iteration = step.iteration - edge.lag
            if edge.before in taking_part:
                clock.wait_until(self._ended(turn, iteration, edge.before))
            else:  # a message, for which nobody has a turn of its own
                sent = (self._ended(turn, iteration - each.lag, each.before) for each in self._before[edge.before])
                come = max(come, max(sent) + lengths[edge.before])
        clock.wait_until(come)
        start, records, what = clock.now(), self._open[step.iteration], (*step[1:3], step.action)
        records.append(RunRecord("receipt", *what, begin, come, loss=0.0))
        clock.wait_until(start + lengths[own])
        records.append(RunRecord("action", *what, start, clock.now(), loss=0.0))
        name = self._name(turn, step.iteration, own)
        if self._store.add(f"parts {name}", 1) == taking_part[own]:
            self._store.set(name, str(clock.now()))
        if len(records) == 2 * len(self._schedule.actions_of(self.number, step.iteration)):
            self.records += self._open.pop(step.iteration)
            self.iteration += 1

    def _ended(self, turn: Turn, iteration: int, operation: str) -> int:
        """Return when an operation has ended, as soon as it has; 0 of an iteration that there is not."""
        return int(self._store.get(self._name(turn, iteration, operation))) if iteration >= 0 else 0

    def _name(self, turn: Turn, iteration: int, operation: str) -> str:
        return f"ended {turn.link_order.run} {self.job} {iteration} {operation}"

    def needs(self) -> tuple[int, int]:
        """Return that nothing is in memory."""
        return 0, 0

    def parameters_sha256(self) -> str:
        """Return the digest of no parameters."""
        return sha256().hexdigest()

    def state(self) -> dict[str, Any]:
        """Return the iterations that were slept through."""
        return {"iteration": self.iteration}

    def trained_state(self, iteration: int) -> dict[str, Any]:
        """Return what `state` gives after so many iterations."""
        return {"iteration": iteration}

    def load(self, state: Mapping[str, Any]) -> None:
        """Return to a `state`."""
        self.iteration = state["iteration"]


def _planned(step: RowStep, turn: Turn) -> TimedIteration:
    """Return the iteration of the plan to which a step belongs."""
    iterations = turn.order.jobs[step.job].iterations
    return iterations[step.iteration % len(iterations)]

"""The order in which a plan is carried out, from its start times alone. Needs no torch.

All blocks and transfers stand in one row, by planned start; at the same moment transfers come first, then by job,
iteration and bucket. Whatever has to wait waits only for what stands before it in this row, on a GPU, on a link or
in its own job, so the first one in the row that is not done can always go on: nothing ever deadlocks
(see *The order* in the executor's page).

Passes of a pipeline, or operations of a burst, are in the row like blocks. Messages of a pipeline are not: PyTorch's
runtime starts them behind the passes that they come from.

A plan that is carried out several times is laid out pass behind pass, a period apart. The time of the row is cut
into windows of one period; a block whose start lies ``q`` periods after 0 is part of window ``pass + q``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

from jigsaw_opt.executor.schedules.presence import used_gpus
from jigsaw_opt.planning.pipeline.torch_csv import StageSchedule
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan

_EVERYWHERE = -1
"""A link that every transfer uses, where only one may run at a time."""


class TransferKey(NamedTuple):
    """A transfer: its job, its iteration counted over all passes, and its bucket."""

    job: int
    iteration: int
    bucket: int


class RowStep(NamedTuple):
    """A block, a pass of a pipeline, an operation of a burst, or a transfer.

    `start_us`: planned start. `iteration`: counted over all passes. `place`: worker of a block, bucket of a transfer,
    or number of an operation. `shift`: windows after that of its pass. `level`: of a block. `action`: of a pass or an
    operation; empty of all others.
    """

    start_us: int
    job: int
    iteration: int
    place: int
    shift: int
    level: int = 0
    action: str = ""


@dataclass
class ReplayExtent:
    """The extent of a run: what an earlier one has done, and how often the plan is carried out.

    `done`: iterations of each job that an earlier run has finished. `passes`: how often the plan is carried out in all.
    """

    done: Sequence[int]
    passes: int


class ReplayOrder:
    """The order in which blocks and transfers of a plan follow one another.

    `instance, plan`: A plan that is correct for the instance. `serial`: whether transfers on fabrics too run one at a
    time, in the plan's order. `gpus`: GPUs with a process, where the plan is part of a larger one; None for those of
    the plan. `schedule`: what the processes of a task-graph job do; None where there is no such job. `gpus`: GPUs with
    a process, as `used_gpus` has them; the index is the rank of the process. `ranks`: for each job, the rank of each
    worker or slot. `depths`: for each job, the number of levels; 0 of a task-graph job. `period_us`: time from one pass
    to the next.
    """

    def __init__(
        self,
        instance: Instance,
        plan: Plan,
        serial: bool = False,
        gpus: tuple[str, ...] | None = None,
        schedule: StageSchedule | None = None,
    ) -> None:
        self.jobs, self.cyclic = plan.jobs, plan.period_us is not None
        self.gpus = used_gpus(instance, plan.jobs) if gpus is None else gpus
        self.ranks = tuple(tuple(map(self.gpus.index, job.gpus)) for job in plan.jobs)
        models = [None if job.model is None else instance.models[job.model] for job in instance.jobs]
        self.depths = tuple(0 if model is None else model.depth for model in models)
        self._releases = [job.release_us for job in instance.jobs]
        # Nothing of a finite plan starts after its end, so all of it is in one window.
        self.period_us = plan.period_us or max(job.end_us for job in plan.jobs) + 1
        self._links = _links(instance, plan.jobs, serial)
        self._levels = [job.levels for job in plan.jobs]
        self._turns = self._turns_by_link([[] if model is None else model.bucket_bytes() for model in models])
        self._task_graph_of, self._schedule = instance.task_graph_of, schedule
        self._places = {
            (link, *turn[1:4]): place for link, turns in self._turns.items() for place, turn in enumerate(turns)
        }
        self._blocks = [self._blocks_of(rank) for rank in range(len(self.gpus))]

    @property
    def windows_behind(self) -> int:
        """Windows in which blocks of a pass may still begin after its first one."""
        return max(b.start_us // self.period_us for job in self.jobs for i in job.iterations for b in i.blocks)

    def hosted(self, rank: int) -> dict[int, int]:
        """Return data-parallel jobs with a worker in the process of `rank`, and which worker."""
        return {job: ranks.index(rank) for job, ranks in enumerate(self.ranks) if self.depths[job] and rank in ranks}

    def levels(self, job: int, iteration: int) -> tuple[int, ...]:
        """Return the levels of all workers of a job in an iteration."""
        own = self._levels[job]
        return own[iteration % len(own)]

    def release_us(self, step: RowStep) -> int:
        """Return the time before which a block must not start, as its job is not there yet."""
        if self.cyclic:  # nothing but the order says when a period begins
            return 0
        turn, number = divmod(step.iteration, len(self.jobs[step.job].iterations))
        return turn * self.period_us + self._releases[step.job] if number == 0 else 0

    def transfer_start_us(self, key: TransferKey) -> int:
        """Return the planned start of a transfer."""
        turn, number = divmod(key.iteration, len(self.jobs[key.job].iterations))
        planned = self.jobs[key.job].iterations[number].transfers[key.bucket - 1]
        return planned.start_us + turn * self.period_us

    def windows(self, progress: ReplayExtent) -> range:
        """Return the windows in which something is left to do, the same for all processes."""
        first = min(done // len(job.iterations) for done, job in zip(progress.done, self.jobs, strict=True))
        return range(first, progress.passes + self.windows_behind)

    def steps(self, rank: int, window: int, progress: ReplayExtent) -> Iterator[RowStep]:
        """Return the blocks and passes of a process in a window, in their order."""
        return filter(None, (self._in_window(step, window, progress) for step in self._blocks[rank]))

    def _blocks_of(self, rank: int) -> list[RowStep]:
        """Return all that a process does in a window, in its order."""
        blocks = (
            RowStep(start % self.period_us, job, number, slot, start // self.period_us, levels[slot])
            for job, slot in self.hosted(rank).items()
            for number, levels in enumerate(self._levels[job])
            for start in (self.jobs[job].iterations[number].blocks[slot].start_us,)
        )
        return sorted(chain(blocks, self._passes_of(rank)))

    def _passes_of(self, rank: int) -> Iterator[RowStep]:
        """Return passes of a pipeline that a process runs, or operations of a burst that it takes part in."""
        for job, shape in self._task_graph_of.items():
            if rank not in self.ranks[job]:
                continue
            assert self._schedule is not None, "what a job with a task graph does is said"
            for number, iteration in enumerate(self.jobs[job].iterations):
                planned = self._schedule.planned_in(number)
                own = self._schedule.actions_of(self.ranks[job].index(rank), number)
                actions = {planned[action]: action for action in own}
                times = zip(shape.operations, iteration.operations, strict=True)
                for place, (name, at) in enumerate(times):
                    if name in actions:
                        shift, offset = divmod(at.start_us, self.period_us)
                        yield RowStep(offset, job, number, place, shift, 0, actions[name])

    def before(self, key: TransferKey, progress: ReplayExtent) -> set[TransferKey]:
        """Return the last transfer before another one on each of its links, those of its own job left out."""
        found = set()
        for link in self._links[key.job]:
            last = self._last_before(key, link, progress)
            if last is not None and last.job != key.job:
                found.add(last)
        return found

    def must_notify(self, job: int) -> bool:
        """Return whether processes without a worker of `job` wait for its transfers.

        Where all workers of one job have processes with workers of the other, each waits for itself.
        """
        return any(
            not set(self.ranks[job]) <= set(ranks) and set(self._links[job]) & set(self._links[other])
            for other, ranks in enumerate(self.ranks)
        )

    def _last_before(self, key: TransferKey, link: int, progress: ReplayExtent) -> TransferKey | None:
        turn, number = divmod(key.iteration, len(self.jobs[key.job].iterations))
        turns, own = self._turns[link], self._places.get((link, key.job, number, key.bucket))
        if own is None:
            return None
        window = turn + turns[own].shift
        for place in count(own - 1, -1):
            # Back through the turns of this window, and of those before it (`place` below 0), to one that is carried
            # out: an earlier run may have done it, or its job may not have begun.
            earlier = window + place // len(turns)
            if earlier < 0:
                return None
            if other := self._in_window(turns[place % len(turns)], earlier, progress):
                return TransferKey(*other[1:4])
        return None

    def _in_window(self, step: RowStep, window: int, progress: ReplayExtent) -> RowStep | None:
        """Return what a step of one pass is in a window; None where that is not carried out."""
        turn = window - step.shift
        iteration = turn * len(self.jobs[step.job].iterations) + step.iteration
        if turn < 0 or iteration < progress.done[step.job] or turn >= progress.passes:
            return None
        return step._replace(iteration=iteration, start_us=window * self.period_us + step.start_us)

    def _turns_by_link(self, sizes: Sequence[Sequence[int]]) -> dict[int, list[RowStep]]:
        found: dict[int, list[RowStep]] = {link: [] for links in self._links for link in links}
        for job, plan in enumerate(self.jobs):
            for number, iteration in enumerate(plan.iterations if isinstance(plan, JobPlan) else ()):
                for transfer in iteration.transfers:
                    shift, offset = divmod(transfer.start_us, self.period_us)
                    # An empty bucket is not sent, so it needs no turn.
                    for link in self._links[job] if sizes[job][transfer.bucket - 1] else ():
                        found[link].append(RowStep(offset, job, number, transfer.bucket, shift))
        return {link: sorted(turns) for link, turns in found.items()}


def _links(instance: Instance, jobs: Sequence[JobPlan | TaskGraphJobPlan], serial: bool) -> list[tuple[int, ...]]:
    """Return links of each job's transfers that wait for their turn; none of a task-graph job."""
    routes = Routes(instance.cluster)
    server_of = {server.name: index for index, server in enumerate(instance.cluster.servers)}
    found: list[tuple[int, ...]] = []
    for asked, job in zip(instance.jobs, jobs, strict=True):
        servers = Counter(server_of[gpu.rpartition("/")[0]] for gpu in job.gpus)
        channel = None if asked.model is None else routes.under(asked.route_policy).channel(servers)
        found.append((channel.links if channel else ()) + ((_EVERYWHERE,) if serial and asked.model else ()))
    return found

"""What each process of a replay does, from building its workers to handing over what it found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain

import torch
import torch.distributed as dist

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.building import build
from jigsaw_opt.executor.exchange import Averaging, GradientExchange
from jigsaw_opt.executor.memory import saved_bytes
from jigsaw_opt.executor.processes import keep_to_share, report_so_far
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica
from jigsaw_opt.executor.replay.link_order import LinkOrder, Store, TCPStore, Windows
from jigsaw_opt.executor.replay.order import ReplayExtent, ReplayOrder, used_gpus
from jigsaw_opt.executor.replay.records import Part, RankReport
from jigsaw_opt.executor.replay.request import AnyReplayRequest, ReplayRequest
from jigsaw_opt.executor.replay.run import Run
from jigsaw_opt.executor.worker import TrainingRecipe, Worker
from jigsaw_opt.problem.memory import needed_bytes
from jigsaw_opt.problem.plan import JobPlan, Plan

__all__ = ["TIMEOUT", "RankProcess", "run_rank"]

TIMEOUT = timedelta(minutes=30)
"""Longest wait for another process; one that has ended is noticed at once."""
_MOST_WARM = 16


def run_rank(request: ReplayRequest, plans: Sequence[Plan]) -> list[RankReport] | None:
    """Do the part of this process, which has joined the default process group.

    Parameters
    ----------
    request
        What to do.
    plans
        The plan, and that of the baseline if there is one.

    Returns
    -------
    list of RankReport or None
        In the first process, what each one found.
    """
    here = _PlanProcess(request, plans)
    return here.hand_over(here.replay())


class RankProcess:
    """One process, what it shares with the others, and how it makes its workers.

    Parameters
    ----------
    request
        What to do.
    jobs
        For each job of the instance, what it does in all plans that are carried out.

    Attributes
    ----------
    ranks : list of tuple of int
        By job, the rank of each worker.
    """

    def __init__(self, request: AnyReplayRequest, jobs: Sequence[Sequence[JobPlan]]) -> None:
        self.request, self.rank = request, dist.get_rank()
        self.device = _device(request, int(os.environ.get("LOCAL_RANK", self.rank)))
        self.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._main_store, self.store = _store(self.control)
        self.gpus = used_gpus(request.instance, chain.from_iterable(jobs))
        self.ranks = [tuple(map(self.gpus.index, parts[0].gpus)) for parts in jobs]
        self._levels = [_distinct_levels(parts) for parts in jobs]
        self._exchanges = [self._exchange(job) for job in range(len(jobs))]
        self.done = [0] * len(self.ranks)
        self.memory = 0
        self._block_bytes: dict[int, int] = {}
        self._ended: tuple[Part, ...] = ()
        self._running: Run | None = None
        report_so_far(self._so_far)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it did in the runs that have ended."""
        return self._ended

    def _so_far(self) -> RankReport:
        """Return what has been measured, while the work goes on."""
        ended, running = self._ended, self._running
        parts = [*ended, *([running.part()] if running is not None and not running.ended else [])]
        return RankReport(parts, {}, self.memory, self.done)

    def carry_out(self, run: Run) -> None:
        """Do the part of this process in a run, and keep what it measured."""
        self._running = run
        self._ended = (*self._ended, run.carry_out())
        run.close()

    def _exchange(self, job: int) -> GradientExchange:
        asked = self.request.instance.data_parallel[job]
        exchange = GradientExchange(self.ranks[job], Averaging(self.request.averaging))
        exchange.prepare(self._levels[job], self.request.instance.models[asked.model].depth)
        return exchange

    def host(self, job: int) -> HostedReplica:
        """Build the worker of a job that stays in this process."""
        request, asked = self.request, self.request.instance.data_parallel[job]
        seed = request.seed + job
        replica = build(asked.model, request.instance.models[asked.model], request.trusted, seed)
        recipe = TrainingRecipe(request.optimiser, request.options, seed)
        worker = Worker(self.ranks[job].index(self.rank), replica, recipe, self.device)
        return HostedReplica(job, asked.name, worker, self._exchanges[job], self.store.connect())

    def warm_up(self, replica: HostedReplica) -> None:
        """Run iterations that nobody measures, and find what a block of this worker keeps for its backward pass."""
        levels = self._levels[replica.job]
        for turn in levels[:_MOST_WARM] * self.request.warm_up:
            replica.warm_up(turn)
        if self.device.type == "cpu":
            worker = replica.worker
            deepest = max(turn[worker.number] for turn in levels)
            self._block_bytes[replica.job] = sum(saved_bytes(worker.model, worker.batch(), deepest))

    def note_memory(self, replicas: Iterable[HostedReplica]) -> None:
        """Note what these workers, all that are there, take: by torch's allocator, or on a CPU counted as planned."""
        found = (
            torch.cuda.max_memory_allocated(self.device)
            if self.device.type == "cuda"
            else needed_bytes([(r.worker.held_bytes(), self._block_bytes[r.job]) for r in replicas])
        )
        self.memory = max(self.memory, found)

    def hand_over(self, own: RankReport) -> list[RankReport] | None:
        """What each process found, in the first one."""
        found: list[RankReport] | None = [own] * dist.get_world_size() if self.rank == 0 else None
        dist.gather_object(own, found, 0, self.control)
        dist.barrier(self.control)  # nobody leaves while another may still need the store
        return found


class _PlanProcess(RankProcess):
    """One process of those that carry out a plan, and after it the baseline."""

    def __init__(self, request: ReplayRequest, plans: Sequence[Plan]) -> None:
        jobs = list(zip(*(plan.data_parallel for plan in plans), strict=True))
        super().__init__(request, jobs)
        self.request: ReplayRequest = request
        self.orders = [ReplayOrder(request.instance, plan, serial=request.backend == "nccl") for plan in plans]
        self.replicas = {job: self.host(job) for job, ranks in enumerate(self.ranks) if self.rank in ranks}

    def replay(self) -> RankReport:
        folder = self.request.checkpoint
        checkpoint = Checkpoint(folder, self.request) if folder is not None else None
        if checkpoint and self.request.resume:
            self.done = self._resumed(checkpoint)
        initial = {job: replica.worker.state() for job, replica in self.replicas.items()}
        for replica in self.replicas.values():
            self.warm_up(replica)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.note_memory(self.replicas.values())
        clock = ReplayClock(self.control)
        digests: dict[tuple[int, int], str] = {}
        for order in self.orders:
            for job, replica in self.replicas.items():
                replica.worker.load(initial[job])
            self._carry_out(order, clock, checkpoint)
            if order is self.orders[0]:
                digests = {(job, r.worker.number): r.parameters_sha256() for job, r in self.replicas.items()}
                self.note_memory(self.replicas.values())
        return RankReport(list(self.parts), digests, self.memory, self.done)

    def _resumed(self, checkpoint: Checkpoint) -> list[int]:
        """Return all workers to their last whole checkpoint, and say how many iterations each job has behind it."""
        order, passes = self.orders[0], self.request.passes
        done = checkpoint.last_whole(self.ranks, self.control)
        if passes and all(d >= passes * len(job.iterations) for d, job in zip(done, order.jobs, strict=True)):
            raise UsageError(f"the checkpoint has all of {passes} passes over the plan; --iterations takes more")
        for job, replica in self.replicas.items():
            checkpoint.resume(replica, done[job])
        return done

    def _carry_out(self, order: ReplayOrder, clock: ReplayClock, checkpoint: Checkpoint | None) -> None:
        """The plan, or after it the baseline, which takes as many passes and saves nothing."""
        before, done = self.parts, self.done
        request = self.request
        progress = ReplayExtent([0] * len(done), before[0].passes) if before else ReplayExtent(done, request.passes)
        windows = Windows(order, progress, self.rank, None if before else request.minutes, self.store.connect())
        run = Run(
            order,
            progress,
            self.rank,
            self.replicas,
            windows,
            LinkOrder(order, progress, self.rank, len(before)),
            clock,
        )
        run.pace, run.exclusive = request.pace, bool(before)
        if not before:
            run.checkpoint, run.every = checkpoint, request.every
        self.carry_out(run)


def _device(request: AnyReplayRequest, local: int) -> torch.device:
    """The device of this process; on a CPU, its share of the cores and threads."""
    torch.set_num_threads(request.threads)
    if request.device == "cpu":
        keep_to_share(local, int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())))
        return torch.device("cpu")
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _store(control: dist.ProcessGroup) -> tuple[TCPStore | None, Store]:
    """The store that the first process keeps, and where all find it."""
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    first = TCPStore(host, 0, None, True, TIMEOUT, wait_for_workers=False) if dist.get_rank() == 0 else None
    port = torch.tensor(first.port if first else 0)
    dist.broadcast(port, 0, control)
    return first, Store(host, int(port), TIMEOUT)


def _distinct_levels(parts: Sequence[JobPlan]) -> list[tuple[int, ...]]:
    """Levels of all workers that occur in some iteration of a job in some plan, in a fixed order."""
    return sorted({tuple(block.level for block in it.blocks) for part in parts for it in part.iterations})

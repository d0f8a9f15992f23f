"""What each process of a replay does, from building its workers to handing over what it found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from resource import RUSAGE_SELF, getrusage

import torch
import torch.distributed as dist

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.building import build
from jigsaw_opt.executor.exchange import Averaging, GradientExchange
from jigsaw_opt.executor.processes import keep_to_share
from jigsaw_opt.executor.replay.checkpoint import Checkpoint
from jigsaw_opt.executor.replay.clock import ReplayClock
from jigsaw_opt.executor.replay.hosted_replica import HostedReplica
from jigsaw_opt.executor.replay.link_order import LinkOrder, Store, TCPStore, Windows
from jigsaw_opt.executor.replay.order import ReplayExtent, ReplayOrder
from jigsaw_opt.executor.replay.records import Part, RankReport
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.executor.replay.run import Run
from jigsaw_opt.executor.worker import TrainingRecipe, Worker
from jigsaw_opt.problem.plan import Plan

__all__ = ["TIMEOUT", "run_rank"]

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
    list of Found or None
        In the first process, what each one found.
    """
    here = _RankProcess(request, plans)
    own = here.replay()
    found: list[RankReport] | None = [own] * dist.get_world_size() if here.rank == 0 else None
    dist.gather_object(own, found, 0, here.control)
    dist.barrier(here.control)  # nobody leaves while another may still need the store
    return found


class _RankProcess:
    """One process, its workers, and what it shares with the others."""

    def __init__(self, request: ReplayRequest, plans: Sequence[Plan]) -> None:
        self.request, self.rank = request, dist.get_rank()
        self._device = _device(request, int(os.environ.get("LOCAL_RANK", self.rank)))
        self.control = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._main_store, self.store = _store(self.control)
        self.orders = [ReplayOrder(request.instance, plan, serial=request.backend == "nccl") for plan in plans]
        self._levels = [_distinct_levels(self.orders, job) for job in range(len(plans[0].jobs))]
        self.replicas = self._hosted()

    def _hosted(self) -> dict[int, HostedReplica]:
        order, request = self.orders[0], self.request
        hosted = order.hosted(self.rank)
        found = {}
        for number, (job, ranks) in enumerate(zip(request.instance.data_parallel, order.ranks, strict=True)):
            exchange = GradientExchange(ranks, Averaging(request.averaging))
            exchange.prepare(self._levels[number], order.depths[number])
            if number in hosted:
                seed = request.seed + number
                replica = build(job.model, request.instance.models[job.model], request.trusted, seed)
                recipe = TrainingRecipe(request.optimiser, request.options, seed)
                worker = Worker(hosted[number], replica, recipe, self._device)
                found[number] = HostedReplica(job.name, worker, exchange, self.store.connect())
        return found

    def replay(self) -> RankReport:
        folder = self.request.checkpoint
        checkpoint = Checkpoint(folder, self.request) if folder is not None else None
        done = self._resumed(checkpoint) if checkpoint and self.request.resume else [0] * len(self._levels)
        initial = {job: replica.worker.state() for job, replica in self.replicas.items()}
        self._warm_up()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        clock = ReplayClock(self.control)
        parts: list[Part] = []
        digests: dict[tuple[int, int], str] = {}
        memory = 0
        for order in self.orders:
            for job, replica in self.replicas.items():
                replica.worker.load(initial[job])
            parts.append(self._carry_out(order, clock, parts, done, checkpoint))
            if order is self.orders[0]:
                digests, memory = self._digests(), _peak_memory(self._device)
        return RankReport(parts, digests, memory, done)

    def _resumed(self, checkpoint: Checkpoint) -> list[int]:
        """Return all workers to their last whole checkpoint, and say how many iterations each job has behind it."""
        order, passes = self.orders[0], self.request.passes
        done = checkpoint.last_whole(order.ranks, self.control)
        if passes and all(d >= passes * len(job.iterations) for d, job in zip(done, order.jobs, strict=True)):
            raise UsageError(f"the checkpoint has all of {passes} passes over the plan; --iterations takes more")
        for job, replica in self.replicas.items():
            if done[job]:
                checkpoint.load(job, replica.worker, done[job])
        return done

    def _carry_out(
        self,
        order: ReplayOrder,
        clock: ReplayClock,
        before: Sequence[Part],
        done: list[int],
        checkpoint: Checkpoint | None,
    ) -> Part:
        """The plan, or after it the baseline, which takes as many passes and saves nothing."""
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
        return run.carry_out()

    def _warm_up(self) -> None:
        for job, levels in enumerate(self._levels):
            for turn in levels[:_MOST_WARM] * self.request.warm_up if job in self.replicas else ():
                self.replicas[job].warm_up(turn)

    def _digests(self) -> dict[tuple[int, int], str]:
        for replica in self.replicas.values():
            replica.worker.step()
        return {(job, r.worker.number): r.parameters_sha256() for job, r in self.replicas.items()}


def _device(request: ReplayRequest, local: int) -> torch.device:
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


def _distinct_levels(orders: Sequence[ReplayOrder], job: int) -> list[tuple[int, ...]]:
    """Levels of all workers that occur in some iteration of some plan, in a fixed order."""
    numbers = range(len(orders[0].jobs[job].iterations))
    return sorted({order.levels(job, number) for order in orders for number in numbers})


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024

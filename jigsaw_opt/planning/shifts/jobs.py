"""Placed jobs that repeat their iterations, each on GPUs of its own (``docs/links.md``)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.plan import JobPlan, Plan

WorkerGpus = tuple[tuple[Gpu, ...], ...]
"""GPU of each worker, by job."""
_TRIES = 100
"""Orders of the jobs in which it is tried to draw GPUs for all: a later job may find none where others took them."""


@dataclass(frozen=True)
class OwnIteration:
    """An iteration of a job alone on its GPUs, where all blocks start at once; times in microseconds.

    `ready_us`: when each bucket is ready at all of its contributors.
    """

    compute_us: int
    ready_us: tuple[int, ...]
    exchange_us: tuple[int, ...]

    def transfers(self) -> list[tuple[int, int]]:
        """Start and end of each transfer, as early as possible; this is the least span of the iteration."""
        done, end = [], 0
        for ready, length in zip(self.ready_us, self.exchange_us, strict=True):
            start = max(end, ready)
            end = start + length
            done.append((start, end))
        return done

    @cached_property
    def span_us(self) -> int:
        """From the first block to the last end."""
        return max([self.compute_us, *(end for _, end in self.transfers())])


@dataclass(frozen=True)
class RepeatedJob:
    """A placed job whose levels are known.

    `channel`: links, rate and latency of its transfers. `iterations`: its iterations, which follow each other for ever.
    """

    name: str
    channel: Channel
    iterations: tuple[OwnIteration, ...]

    @cached_property
    def cycle_us(self) -> int:
        """Time of all its iterations where it has the links alone: its least period."""
        return sum(iteration.span_us for iteration in self.iterations)

    @property
    def alone_us(self) -> float:
        """Mean time of an iteration where it has the links alone."""
        return self.cycle_us / len(self.iterations)

    @cached_property
    def transfers(self) -> tuple[tuple[int, int], ...]:
        """Start and end of each transfer in the cycle, those of no length left out."""
        found, begin = [], 0
        for iteration in self.iterations:
            found += [(begin + start, begin + end) for start, end in iteration.transfers() if end > start]
            begin += iteration.span_us
        return tuple(found)

    @property
    def busy_us(self) -> int:
        """Time of all transfers of a cycle."""
        return sum(end - start for start, end in self.transfers)


def placement_of(operations: Operations, plan: Plan) -> WorkerGpus:
    """Return the GPUs of each worker of the data-parallel jobs in a plan."""
    place_of = operations.instance.cluster.gpus.place_of
    return tuple(tuple(place_of[name] for name in job.gpus) for job in plan.data_parallel)


def repeated_jobs(operations: Operations, placement: WorkerGpus, plan: Plan) -> tuple[RepeatedJob, ...]:
    """Return the jobs on a placement, with the levels that they have in a plan."""
    users: dict[Gpu, str] = {}
    for graph, gpus in zip(operations.jobs, placement, strict=True):
        for gpu in gpus:
            other = users.setdefault(gpu, graph.name)
            if other != graph.name:
                both = f"jobs {other!r} and {graph.name!r} share GPU {operations.cluster.gpu_name(*gpu)}"
                raise UsageError(f"{both}; time shifts are for jobs on GPUs of their own", code="unsupported")
    every = zip(operations.jobs, placement, plan.data_parallel, strict=True)
    return tuple(_repeated(operations, graph, gpus, done) for graph, gpus, done in every)


def _repeated(operations: Operations, graph: OperationGraph, gpus: Sequence[Gpu], done: JobPlan) -> RepeatedJob:
    channel = channel_of(operations, graph, gpus)
    if channel is None:
        raise UsageError(f"no path joins all servers of job {graph.name!r}", code="empty")
    types = [operations.cluster.servers[server].gpu_type for server, _ in gpus]
    tables = [block.duration_us[kind] for block, kind in zip(graph.blocks, types, strict=True)]
    rows = done.levels
    return RepeatedJob(graph.name, channel, tuple(iteration_of(graph, tables, row, channel) for row in rows))


def iteration_of(
    graph: OperationGraph, tables: Sequence[Sequence[int]], levels: Sequence[int], channel: Channel
) -> OwnIteration:
    """Return an iteration of a job alone.

    `tables, levels`: for each worker, the lengths of its block by level, and its level.
    """
    taken = list(zip(tables, levels, strict=True))
    buckets = [transfer.bucket for transfer in graph.transfers]
    return OwnIteration(
        max(table[level - 1] for table, level in taken),
        tuple(max(table[b - 1] for table, level in taken if level >= b) for b in buckets),
        tuple(graph.transfer_us(b, contributors(levels, b), channel) for b in buckets),
    )


def draw_placement(operations: Operations, seed: int) -> WorkerGpus | None:
    """Return a random placement with a GPU of its own for each worker, on few servers a job; None where none is found.

    Jobs come in a random order. Each takes the free GPUs of one server after the other, in a random order of servers
    but for those that hold all of it, which come first.
    """
    rng = random.Random(seed)
    for _ in range(_TRIES):
        free = Counter({k: server.gpus for k, server in enumerate(operations.cluster.servers)})
        found: dict[str, tuple[Gpu, ...]] = {}
        for graph in rng.sample(operations.jobs, len(operations.jobs)):
            gpus = _take(operations, graph, free, rng)
            if gpus is None:
                break
            found[graph.name] = gpus
        if len(found) == len(operations.jobs):
            return tuple(found[graph.name] for graph in operations.jobs)
    return None


def _take(
    operations: Operations, graph: OperationGraph, free: Counter[int], rng: random.Random
) -> tuple[Gpu, ...] | None:
    servers = operations.cluster.servers
    needed = graph.state_bytes + graph.activation_bytes[-1]
    fit = [
        k
        for k, server in enumerate(servers)
        if free[k] and server.gpu_type in graph.gpu_types and needed <= server.gpu_memory
    ]
    rng.shuffle(fit)
    fit.sort(key=lambda k: free[k] < graph.slots)
    spots = [(k, index) for k in fit for index in range(servers[k].gpus - free[k], servers[k].gpus)]
    gpus = tuple(spots[: graph.slots])
    if len(gpus) < graph.slots or channel_of(operations, graph, gpus) is None:
        return None
    free.subtract(server for server, _ in gpus)
    return gpus


def channel_of(operations: Operations, graph: OperationGraph, gpus: Sequence[Gpu]) -> Channel | None:
    """Return the channel of a job on some GPUs; None where no path joins them."""
    workers: Mapping[int, int] = Counter(server for server, _ in gpus)
    return operations.routes.under(graph.route_policy).channel(workers)

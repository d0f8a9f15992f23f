"""Rules for a task-graph job (specification: task-graph-jobs, placement, duration, release, edges, barrier, period)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.checking.terms import transfer_duration
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.plan import TaskGraphIteration, TaskGraphJobPlan, TimedOperation
from jigsaw_opt.problem.task_graph import Edge, TaskGraph, TaskGraphBlock, TaskGraphJob, TaskGraphTransfer


@dataclass(frozen=True, slots=True)
class OperationTerms:
    """The data of an operation of a task graph once its slots are placed.

    `duration_us`: the least time that it takes; 0 where its slots are on no GPU that can run it. `gpus`: the GPUs that
    it runs on. `links`: numbers of the links that it uses.
    """

    name: str
    duration_us: int
    gpus: tuple[str, ...] = ()
    links: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedTaskGraphJob:
    """A task-graph job of the plan and the job of the instance that it claims to be.

    `path`: path of the job in the plan. `job, plan`: what was asked and what is claimed. `servers`: number of the
    server of each slot; None where the plan names no GPU that exists. `joined`: whether routes join all of these; True
    where some are not known. `blocks, transfers`: its operations in the order of the task graph.
    """

    path: str
    job: TaskGraphJob
    plan: TaskGraphJobPlan
    servers: tuple[int | None, ...]
    joined: bool
    blocks: tuple[OperationTerms, ...]
    transfers: tuple[OperationTerms, ...]

    @property
    def shape(self) -> TaskGraph:
        """Its task graph."""
        return self.job.shape

    def iterations(self) -> Iterator[tuple[str, TaskGraphIteration]]:
        """Yield the iterations of the plan with their paths."""
        for index, iteration in enumerate(self.plan.iterations):
            yield f"{self.path}.iterations[{index}]", iteration

    def is_complete(self, iteration: TaskGraphIteration) -> bool:
        """Return whether the iteration has as many blocks and transfers as the task graph."""
        found = len(iteration.blocks), len(iteration.transfers)
        return found == (len(self.blocks), len(self.transfers))

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing and nothing is too much, so that the end of the job means something."""
        count = len(self.plan.iterations) == self.job.iterations
        return count and all(map(self.is_complete, self.plan.iterations))

    @property
    def end_us(self) -> int:
        """Largest end of all operations, in microseconds (specification: end-of-a-task-graph-job)."""
        return max((operation.end_us for operation in self.plan.operations), default=0)

    def held(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield GPU, start, end and bytes of every hold, in complete iterations (specification: holds)."""
        block = {block.name: number for number, block in enumerate(self.shape.blocks)}
        gpu = dict(zip((slot.name for slot in self.shape.slots), self.plan.gpus, strict=False))
        for hold in self.shape.holds:
            start, end = block[hold.start], block[hold.end]
            slot = hold.slot if hold.slot is not None else self.shape.blocks[start].slots[0]
            for iteration in self.plan.iterations if slot in gpu else ():
                if self.is_complete(iteration):
                    begin, stop = iteration.blocks[start].start_us, iteration.blocks[end].end_us
                    if begin < stop:
                        yield gpu[slot], begin, stop, hold.bytes


def checked_task_graph(
    path: str,
    job: TaskGraphJob,
    plan: TaskGraphJobPlan,
    servers: tuple[int | None, ...],
    cluster: Cluster,
    routes: RouteFinder,
) -> CheckedTaskGraphJob:
    """Pair a job with its plan, with the durations and resources of its operations where the plan puts them.

    `servers`: number of the server of each slot; None where the plan names no GPU that exists.
    """
    names = [slot.name for slot in job.shape.slots]
    sites = {name: (gpu, s) for name, gpu, s in zip(names, plan.gpus, servers, strict=False) if s is not None}
    gpus = {name: gpu for name, (gpu, _) in sites.items()}
    types = {name: cluster.servers[server].gpu_type for name, (_, server) in sites.items()}
    placed = {name: server for name, (_, server) in sites.items()}
    # Of servers that are not known nothing can be said here; their absence is reported as a placement.
    joined = len(sites) < len(names) or routes.exchange(list(placed.values())) is not None
    return CheckedTaskGraphJob(
        path,
        job,
        plan,
        servers,
        joined,
        tuple(_block_terms(block, gpus, types) for block in job.shape.blocks),
        tuple(_transfer_terms(transfer, placed, routes) for transfer in job.shape.transfers),
    )


def _block_terms(block: TaskGraphBlock, gpus: Mapping[str, str], types: Mapping[str, str]) -> OperationTerms:
    """Return the terms of a block, which is as slow as the slowest of its GPUs."""
    placed = [slot for slot in block.slots if slot in gpus]
    longest = max((block.duration_us.get(types[slot], 0) for slot in placed), default=0)
    return OperationTerms(block.name, longest, gpus=tuple(dict.fromkeys(gpus[slot] for slot in placed)))


def _transfer_terms(transfer: TaskGraphTransfer, servers: Mapping[str, int], routes: RouteFinder) -> OperationTerms:
    """Return the terms of a transfer: a ring among slots, or a route from one to another."""
    if transfer.source is None or transfer.target is None:
        there = [servers[slot] for slot in transfer.among if slot in servers]
        workers = len(transfer.among)
        ring = routes.exchange(there) if len(there) == workers else None
        if ring is None:
            return OperationTerms(transfer.name, 0)
        takes = transfer_duration(transfer.bytes, workers, workers, ring.rate, ring.latency_us)
        return OperationTerms(transfer.name, takes, links=tuple(ring.links))
    one, other = servers.get(transfer.source), servers.get(transfer.target)
    way = routes.passage(one, other) if one is not None and other is not None else None
    if way is None:
        return OperationTerms(transfer.name, 0)
    # Bytes a second become microseconds, rounded up in integers.
    takes = -(-transfer.bytes * 10**6 // way.rate) + way.latency_us
    return OperationTerms(transfer.name, takes, links=tuple(way.links))


def task_graph_violations(job: CheckedTaskGraphJob, cluster: Cluster, period_us: int | None) -> Iterator[Violation]:
    """Check whatever is asked of one task-graph job alone.

    `period_us`: the period of a cyclic plan, at least 1; None on the finite horizon.
    """
    yield from _contents(job)
    yield from _placement(job, cluster)
    yield from _times(job, period_us)
    yield from _edges(job, period_us)
    yield from _barrier(job, period_us)


def _contents(job: CheckedTaskGraphJob) -> Iterator[Violation]:
    """Check that there are as many GPUs, iterations and operations as the task graph has (specification: document)."""
    slots, iterations = len(job.shape.slots), job.job.iterations
    if len(job.plan.gpus) != slots:
        yield Violation("document", f"{job.path}.gpus", f"{len(job.plan.gpus)} GPUs for {slots} slots")
    if len(job.plan.iterations) != iterations:
        found = len(job.plan.iterations)
        yield Violation("document", f"{job.path}.iterations", f"{found} iterations, but the job has {iterations}")
    for path, iteration in job.iterations():
        for kind, terms in (("blocks", job.blocks), ("transfers", job.transfers)):
            count = len(iteration.blocks if kind == "blocks" else iteration.transfers)
            if count != len(terms):
                yield Violation("document", f"{path}.{kind}", f"{count} {kind}, but the task graph has {len(terms)}")


def _placement(job: CheckedTaskGraphJob, cluster: Cluster) -> Iterator[Violation]:
    """Check that GPUs exist, differ, and run the blocks of their slots, and that servers reach each other."""
    needed: defaultdict[str, list[TaskGraphBlock]] = defaultdict(list)
    for block in job.shape.blocks:
        for slot in block.slots:
            needed[slot].append(block)
    first: dict[str, int] = {}
    for number, (gpu, server) in enumerate(zip(job.plan.gpus, job.servers, strict=True)):
        path = f"{job.path}.gpus[{number}]"
        if server is None:
            yield Violation("placement", path, f"the cluster has no GPU {gpu!r}")
        elif number < len(job.shape.slots):
            gpu_type = cluster.servers[server].gpu_type
            unable = [b.name for b in needed[job.shape.slots[number].name] if gpu_type not in b.duration_us]
            if unable:
                message = f"GPU {gpu} is a {gpu_type}, which block {unable[0]!r} cannot run on"
                yield Violation("placement", path, message)
        if first.setdefault(gpu, number) != number:
            yield Violation("placement", path, f"GPU {gpu} also holds slot {first[gpu]} of the job")
    if not job.joined:
        yield Violation("placement", f"{job.path}.gpus", "no route joins all the servers of the job")


def _times(job: CheckedTaskGraphJob, period_us: int | None) -> Iterator[Violation]:
    """Check durations, the release and the longest that fits a period."""
    release_us = job.job.release_us
    for path, iteration in job.iterations():
        for kind, terms in (("blocks", job.blocks), ("transfers", job.transfers)):
            executions = iteration.blocks if kind == "blocks" else iteration.transfers
            for index, (term, found) in enumerate(zip(terms, executions, strict=False)):
                where, lasts = f"{path}.{kind}[{index}]", found.end_us - found.start_us
                if lasts < term.duration_us:
                    message = f"{term.name!r} lasts {lasts} us, but takes {term.duration_us} us"
                    yield Violation("duration", where, message)
                if found.start_us < release_us:
                    message = f"{term.name!r} starts at {found.start_us}, before the release of the job at {release_us}"
                    yield Violation("release", where, message)
                if period_us is not None and lasts > period_us:
                    message = f"{term.name!r} lasts {lasts} us, longer than the period of {period_us} us"
                    yield Violation("period", where, message)


_Row = tuple[TimedOperation, ...]
"""All operations of an iteration in the order of the task graph."""


def _rows(job: CheckedTaskGraphJob) -> list[_Row | None]:
    """Return the operations of each iteration; None where it is not complete."""
    complete = job.is_complete
    return [iteration.operations if complete(iteration) else None for iteration in job.plan.iterations]


def _later(rows: Sequence[_Row | None], lag: int, period_us: int | None) -> Iterator[tuple[int, _Row, int, _Row, int]]:
    """Yield each complete iteration with its number, the one `lag` later, and the microseconds to be added to that."""
    count = len(rows)
    for i, first in enumerate(rows):
        # The iteration `lag` later lies `turns` periods later. On the finite horizon there is none behind the last.
        turns, j = divmod(i + lag, count)
        second = rows[j]
        if first is not None and second is not None and (turns == 0 or period_us is not None):
            yield i, first, j, second, turns * (period_us or 0)


def _edges(job: CheckedTaskGraphJob, period_us: int | None) -> Iterator[Violation]:
    """Check every edge, written or not (specification: edges, cyclic-horizon)."""
    rows, number = _rows(job), {term.name: k for k, term in enumerate((*job.blocks, *job.transfers))}
    # Each operation waits for itself an iteration before, also where no edge says so.
    unwritten = [Edge(name, name, 1) for name in number]
    for edge in dict.fromkeys((*job.shape.edges, *unwritten)):
        before, after = number[edge.before], number[edge.after]
        for i, first, j, second, offset in _later(rows, edge.lag, period_us):
            if second[after].start_us + offset >= first[before].end_us:
                continue
            message = (
                f"{edge.after!r} starts at {_moment(second[after].start_us, offset)}, before {edge.before!r} "
                f"of iteration {i} ends at {first[before].end_us}"
            )
            yield Violation("edges", _path(job, j, after), message)


def _moment(start_us: int, offset: int) -> str:
    return f"{start_us + offset} ({start_us} and {offset} later)" if offset else str(start_us)


def _path(job: CheckedTaskGraphJob, iteration: int, number: int) -> str:
    kind, index = ("blocks", number) if number < len(job.blocks) else ("transfers", number - len(job.blocks))
    return f"{job.path}.iterations[{iteration}].{kind}[{index}]"


def _barrier(job: CheckedTaskGraphJob, period_us: int | None) -> Iterator[Violation]:
    """Check what separates an iteration from the next one, around the period too (specification: barrier)."""
    rows = _rows(job)
    for numbers, what in _separated(job):
        for i, first, j, second, offset in _later(rows, 1, period_us):
            ended = max(first[k].end_us for k in numbers)
            for k in (k for k in numbers if second[k].start_us + offset < ended):
                start = _moment(second[k].start_us, offset)
                message = f"starts at {start}, before {what} of iteration {i} ends at {ended}"
                yield Violation("barrier", _path(job, j, k), message)


def _separated(job: CheckedTaskGraphJob) -> Iterator[tuple[Sequence[int], str]]:
    """Yield the numbers of operations that the barrier keeps apart as a whole, and what they are."""
    if job.shape.barrier == "job":
        yield range(len(job.blocks) + len(job.transfers)), "the last operation"
    if job.shape.barrier == "slot":
        of_slot: defaultdict[str, list[int]] = defaultdict(list)
        for number, block in enumerate(job.shape.blocks):
            for slot in block.slots:
                of_slot[slot].append(number)
        for slot, numbers in of_slot.items():
            yield numbers, f"the last block of slot {slot!r}"

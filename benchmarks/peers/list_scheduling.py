"""List scheduling as one writes it first: jobs in the order of the list, each on the least loaded GPUs with room.

Levels are as shallow as the depth rule permits, and the deepest one goes to the GPU that is free first. Nothing is put
in front of what is already there. The first lists are the instance's own (first come, first served) and those of the
textbook's priorities: Smith's ratio of work to weight for weighted completions, the longest job and the most work first
otherwise. Each is scheduled twice: iterations in the order in which they may begin, and job after job. While time is
left, shuffled lists follow, scheduled in the way that was better; the best plan is kept.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import itemgetter

from attempt import Attempt
from depth import shallow_levels

from jigsaw_opt.problem import Channel, Instance, OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble
from jigsaw_opt.problem.costs import contributors


def unsupported(instance: Instance) -> str | None:
    """Never: it takes every instance."""
    return None


def solve(attempt: Attempt) -> None:
    """Schedule the lists of all priorities in both ways, then shuffled ones until the time is over."""
    operations, draw, lists, one_by_one = attempt.operations, random.Random(attempt.seed), 0, False
    for way, order in product((False, True), priorities(operations)):
        before = attempt.objective
        _offer(attempt, order, way)
        one_by_one, lists = way if attempt.objective != before else one_by_one, lists + 1
    order = list(range(len(operations.jobs)))
    while attempt.remaining > 0:
        draw.shuffle(order)
        _offer(attempt, order, one_by_one)
        lists += 1
    attempt.note = f"{lists} lists"


def priorities(operations: Operations) -> Iterator[list[int]]:
    """The instance's own list, and those of the priorities that textbooks have for the objective."""
    rows = [shallow_levels(job) or () for job in operations.jobs]
    fastest = [min(job.blocks[0].duration_us.values(), key=itemgetter(-1)) for job in operations.jobs]
    works = [sum(times[d - 1] for row in own for d in row) for times, own in zip(fastest, rows, strict=True)]
    paths = [sum(times[row[0] - 1] for row in own) for times, own in zip(fastest, rows, strict=True)]
    numbers = list(range(len(rows)))
    yield numbers
    if operations.objective == "weighted_completion":
        yield sorted(numbers, key=lambda index: works[index] / operations.jobs[index].weight)
        yield sorted(numbers, key=lambda index: paths[index] / operations.jobs[index].weight)
    else:
        yield sorted(numbers, key=lambda index: -paths[index])
        yield sorted(numbers, key=lambda index: -works[index])


def _offer(attempt: Attempt, order: Sequence[int], one_by_one: bool) -> None:
    timetable = list_timetable(attempt.operations, order, one_by_one)
    if timetable is not None:
        attempt.offer(timetable)


def list_timetable(operations: Operations, order: Sequence[int], one_by_one: bool = False) -> Timetable | None:
    """The timetable of one list: iterations in the order in which they may begin, or `one_by_one` job after job.

    Of a cyclic instance the next period begins when all jobs have ended. None where a job finds no GPUs, or its depth
    rule allows no levels.
    """
    cluster = _Cluster(operations)
    placed: list[_Placed] = []
    for index in order:
        job = _place(cluster, index)
        if job is None:
            return None
        placed.append(job)
    _one_by_one(cluster, placed) if one_by_one else _in_turn(cluster, placed)
    decisions = {each.index: each.decision for each in placed}
    jobs = assemble(operations, [decisions[index] for index in range(len(operations.jobs))])
    return Timetable(jobs, max(job.end_us for job in jobs) if operations.horizon == "cyclic" else None)


def _one_by_one(cluster: _Cluster, placed: Sequence[_Placed]) -> None:
    for each in placed:
        end = each.job.release_us
        for iteration in range(each.job.iterations):
            end = _schedule(cluster, each, iteration, end)


def _in_turn(cluster: _Cluster, placed: Sequence[_Placed]) -> None:
    waiting = [(each.job.release_us, rank, 0) for rank, each in enumerate(placed)]
    heapq.heapify(waiting)
    while waiting:
        barrier, rank, iteration = heapq.heappop(waiting)
        end = _schedule(cluster, placed[rank], iteration, barrier)
        if iteration + 1 < placed[rank].job.iterations:
            heapq.heappush(waiting, (end, rank, iteration + 1))


class _Cluster:
    """What is left of every GPU and link."""

    def __init__(self, operations: Operations) -> None:
        servers = operations.cluster.servers
        self.operations = operations
        self.state: dict[Gpu, int] = {(s, k): 0 for s, server in enumerate(servers) for k in range(server.gpus)}
        self.peak, self.load, self.free = dict(self.state), dict(self.state), dict(self.state)
        self.link_free = [0] * len(operations.cluster.links)

    def has_room(self, gpu: Gpu, job: OperationGraph) -> bool:
        """Whether the GPU may hold a worker of the job at any level."""
        server = self.operations.cluster.servers[gpu[0]]
        need = self.state[gpu] + job.state_bytes + max(self.peak[gpu], job.activation_bytes[-1])
        return server.gpu_type in job.gpu_types and need <= server.gpu_memory


@dataclass(slots=True)
class _Placed:
    """A job on its GPUs, with its starts as far as they are set."""

    index: int
    job: OperationGraph
    rows: Sequence[Sequence[int]]
    gpus: list[Gpu]
    tables: list[tuple[int, ...]]
    channel: Channel
    decision: JobDecision = field(init=False)
    levels: list[list[int]] = field(default_factory=list)
    starts: list[list[int]] = field(default_factory=list)
    transfers: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decision = JobDecision(self.gpus, self.levels, self.starts, self.transfers)


def _place(cluster: _Cluster, index: int) -> _Placed | None:
    """Put a job on one server if one has room for all of it, else on the least loaded GPUs that are joined."""
    job = cluster.operations.jobs[index]
    rows, gpus = shallow_levels(job), _choose(cluster, job)
    if rows is None or gpus is None:
        return None
    servers = cluster.operations.cluster.servers
    tables = [job.blocks[0].duration_us[servers[s].gpu_type] for s, _ in gpus]
    counts = {s: sum(gpu[0] == s for gpu in gpus) for s, _ in gpus}
    channel = cluster.operations.routes.channel(counts)
    if channel is None:
        return None
    for gpu, table in zip(gpus, tables, strict=True):
        cluster.state[gpu] += job.state_bytes
        cluster.peak[gpu] = max(cluster.peak[gpu], job.activation_bytes[-1])
        cluster.load[gpu] += table[-1] * job.iterations
    return _Placed(index, job, rows, gpus, tables, channel)


def _choose(cluster: _Cluster, job: OperationGraph) -> list[Gpu] | None:
    component = cluster.operations.routes.component
    fitting = sorted((gpu for gpu in cluster.state if cluster.has_room(gpu, job)), key=lambda g: (cluster.load[g], g))
    for group in ([gpu[0] for gpu in fitting], [component[gpu[0]] for gpu in fitting]):
        choices = {g: [gpu for gpu, other in zip(fitting, group, strict=True) if other == g] for g in group}
        able = [gpus[: job.slots] for gpus in choices.values() if len(gpus) >= job.slots]
        if able:
            return min(able, key=lambda gpus: sum(cluster.load[gpu] for gpu in gpus))
    return None


def _schedule(cluster: _Cluster, placed: _Placed, iteration: int, barrier: int) -> int:
    """Append one iteration to its GPUs and links; returns its end."""
    ends = [max(barrier, cluster.free[gpu]) + table[-1] for gpu, table in zip(placed.gpus, placed.tables, strict=True)]
    slots = sorted(range(placed.job.slots), key=ends.__getitem__)
    levels, starts = [0] * placed.job.slots, [0] * placed.job.slots
    end = barrier
    for slot, level in zip(slots, placed.rows[iteration], strict=True):
        gpu = placed.gpus[slot]
        levels[slot], starts[slot] = level, max(barrier, cluster.free[gpu])
        cluster.free[gpu] = starts[slot] + placed.tables[slot][level - 1]
        end = max(end, cluster.free[gpu])
    placed.levels.append(levels)
    placed.starts.append(starts)
    placed.transfers.append([])
    previous = barrier
    for operation in placed.job.transfers:
        previous = _append_transfer(cluster, placed, operation.bucket, previous)
    return max(end, previous)


def _append_transfer(cluster: _Cluster, placed: _Placed, bucket: int, previous: int) -> int:
    """Append one transfer to its links; returns its end."""
    levels, starts = placed.levels[-1], placed.starts[-1]
    ready = [s + t[bucket - 1] for s, t, level in zip(starts, placed.tables, levels, strict=True) if level >= bucket]
    start = max([previous, *ready, *(cluster.link_free[link] for link in placed.channel.links)])
    end = start + placed.job.transfer_us(bucket, contributors(levels, bucket), placed.channel)
    for link in placed.channel.links:
        cluster.link_free[link] = end
    placed.transfers[-1].append(start)
    return end

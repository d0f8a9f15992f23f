"""The activity network: what is left to be timed once GPUs and levels are fixed.

Activities occupy GPUs and links, waits say what waits for what, holds say what memory is taken meanwhile. Both kinds
of job yield it: `add_data_parallel` and `add_task_graph` add a job with its GPUs. Whatever times placed jobs by the
network knows no kind of job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.plan import Execution, TaskGraphIteration, TaskGraphJobPlan


class Activity(NamedTuple):
    """A block or transfer of one iteration.

    `job, iteration`: index of its job among those added, and the iteration. `gpus, links`: GPUs, and indices of links,
    that it occupies all that time. `watts`: what it draws meanwhile on each of its GPUs, in their order; empty where it
    draws nothing.
    """

    job: int
    iteration: int
    duration_us: int
    gpus: tuple[Gpu, ...]
    links: tuple[int, ...]
    release_us: int
    watts: tuple[int, ...] = ()


class Wait(NamedTuple):
    """An activity waits for another one.

    ``start(after) + periods * T >= start(before) + offset_us``; where `offset_us` is None, for the end of `before`.
    """

    before: int
    after: int
    periods: int = 0
    offset_us: int | None = None


class MemoryHold(NamedTuple):
    """Bytes on a GPU from the start of one activity to the end of another."""

    start: int
    end: int
    gpu: Gpu
    bytes: int


class Resident(NamedTuple):
    """What a worker or slot takes of its GPU while its job is present (specification: memory).

    `bytes`: bytes of its state, or of the slot. `activations`: bytes of its activations at its largest level. A GPU
    keeps room for the most of those present.
    """

    gpu: Gpu
    bytes: int
    activations: int = 0


@dataclass(slots=True)
class ActivityNetwork:
    """Activities of placed jobs, and what binds them.

    `horizon`: on the cyclic one, the last iteration of a job is followed by its first one a period later. `activities,
    waits, holds`: what was added, job by job, iteration by iteration, blocks before transfers. `jobs`: by job added,
    how many activities there were before it. `milestones`: numbers of activities that are no block or transfer: they
    take no time, and stand behind the others of their job (`CompiledTaskGraph.milestones`). `residents`: by job added,
    what its workers or slots take while it is present. `memory_bytes`: by GPU, bytes of slots and of states of workers,
    where all jobs are present. `activation_bytes`: by GPU, the most activations of a worker there at its largest level.
    `held`: units of each capacity that jobs hold while they are present, and how many of them each job added holds.
    """

    routes: Routes
    horizon: Horizon = "finite"
    activities: list[Activity] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    holds: list[MemoryHold] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    milestones: list[int] = field(default_factory=list)
    residents: list[list[Resident]] = field(default_factory=list)
    memory_bytes: Counter[Gpu] = field(default_factory=Counter)
    activation_bytes: Counter[Gpu] = field(default_factory=Counter)
    held: Sequence[tuple[int, Sequence[int]]] = ()

    def room(self, gpu: Gpu) -> int:
        """Return the bytes of a GPU that are left for holds while all jobs are present (specification: memory)."""
        memory = self.routes.cluster.servers[gpu[0]].gpu_memory
        return memory - self.memory_bytes[gpu] - self.activation_bytes[gpu]

    def add_data_parallel(self, graph: OperationGraph, gpus: Sequence[Gpu], levels: Sequence[Sequence[int]]) -> None:
        """Add a data-parallel job on its GPUs, with the level of each slot by iteration (specification: iteration)."""
        servers = self.routes.cluster.servers
        channel = self.routes.under(graph.route_policy).channel(Counter(server for server, _ in gpus))
        if channel is None:
            raise ValueError(f"no path joins all servers of job {graph.name}")
        types = [servers[gpus[block.slot][0]].gpu_type for block in graph.blocks]
        tables = [block.duration_us[kind] for block, kind in zip(graph.blocks, types, strict=True)]
        watts = [(graph.power_w[kind],) if kind in graph.power_w else () for kind in types]
        begin, job = len(self.activities), len(self.jobs)
        self.jobs.append(begin)
        for iteration, row in enumerate(checking_deadline(levels)):
            for block, table, drawn in zip(graph.blocks, tables, watts, strict=True):
                gpu = (gpus[block.slot],)
                length = table[row[block.slot] - 1]
                self.activities.append(Activity(job, iteration, length, gpu, (), graph.release_us, drawn))
            for transfer in graph.transfers:
                length = graph.transfer_us(transfer.bucket, contributors(row, transfer.bucket), channel)
                self.activities.append(Activity(job, iteration, length, (), channel.links, graph.release_us))
        self.waits += _data_parallel_waits(graph, tables, levels, begin, self.horizon)
        deepest = [max(column) for column in zip(*levels, strict=True)]
        sizes = [graph.activation_bytes[level - 1] for level in deepest]
        self._add_residents([Resident(gpu, graph.state_bytes, size) for gpu, size in zip(gpus, sizes, strict=True)])

    def _add_residents(self, residents: list[Resident]) -> None:
        self.residents.append(residents)
        for gpu, size, activations in residents:
            self.memory_bytes[gpu] += size
            self.activation_bytes[gpu] = max(self.activation_bytes[gpu], activations)

    def add_task_graph(self, graph: CompiledTaskGraph, gpus: Sequence[Gpu], within_slots: bool = True) -> None:
        """Add a task-graph job on the GPUs of its slots (specification: task-graph-jobs)."""
        begin, job = len(self.activities), len(self.jobs)
        self.jobs.append(begin)
        once = self.operations_of(graph, gpus, job)
        for iteration in checking_deadline(range(graph.job.iterations)):
            self.activities += [activity._replace(iteration=iteration) for activity in once]
        behind, release = len(self.activities), graph.job.release_us
        for iteration in range(graph.job.iterations):
            self.activities += [Activity(job, iteration, 0, (), (), release) for _ in range(graph.milestones)]
        self.milestones += range(behind, len(self.activities))

        def number(at: tuple[int, int]) -> int:
            iteration, operation = at
            if operation < graph.size:
                return begin + iteration * graph.size + operation
            return behind + iteration * graph.milestones + operation - graph.size

        for before, after, periods in checking_deadline(graph.precedences(self.horizon, within_slots)):
            self.waits.append(Wait(number(before), number(after), periods))
        slots = zip(graph.shape.slots, gpus, strict=True)
        self._add_residents([Resident(gpu, slot.memory) for slot, gpu in slots])
        for iteration in range(graph.job.iterations):
            for hold in graph.holds:
                first, last = number((iteration, hold.start)), number((iteration, hold.end))
                self.holds.append(MemoryHold(first, last, gpus[hold.slot], hold.bytes))

    def operations_of(self, graph: CompiledTaskGraph, gpus: Sequence[Gpu], job: int = 0) -> list[Activity]:
        """Return the operations of one iteration of a task-graph job, which are not added."""
        return [self._task_graph_activity(graph, operation, gpus, job) for operation in range(graph.size)]

    def _task_graph_activity(self, graph: CompiledTaskGraph, operation: int, gpus: Sequence[Gpu], job: int) -> Activity:
        """Return an operation of a task-graph job in its first iteration."""
        used = tuple(gpus[slot] for slot in graph.takes_part[operation])
        release = graph.job.release_us
        if operation < graph.blocks:
            types = [self.routes.cluster.servers[server].gpu_type for server, _ in used]
            power_w = graph.shape.blocks[operation].power_w
            watts = () if power_w is None else tuple(power_w.get(kind, 0) for kind in types)
            return Activity(job, 0, graph.block_us(operation, types), used, (), release, watts)
        channel = graph.channel(operation, [server for server, _ in used], self.routes)
        if channel is None:
            raise ValueError(f"no path joins all servers of job {graph.job.name}")
        return Activity(job, 0, graph.transfer_us(operation, channel), (), channel.links, release)

    def with_milestones(self, starts: Sequence[int], period_us: int | None) -> list[int]:
        """Return the starts of all activities, given those of blocks and transfers.

        `starts`: of blocks and transfers in their order, in microseconds; they keep all waits.
        """
        given, others = iter(starts), set(self.milestones)
        found = [own.release_us if n in others else next(given) for n, own in enumerate(self.activities)]
        if others:
            for before, after, periods, _ in self.waits:
                if after in others:
                    end = found[before] + self.activities[before].duration_us
                    found[after] = max(found[after], end - periods * (period_us or 0))
        return found

    def waits_of(self) -> list[list[tuple[int, int]]]:
        """Return by activity what it waits for within one period: the other one, and how long after its start."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.activities]
        for before, after, periods, offset in self.waits:
            if periods == 0:
                found[after].append((before, self.activities[before].duration_us if offset is None else offset))
        return found


def _data_parallel_waits(
    graph: OperationGraph,
    tables: Sequence[Sequence[int]],
    levels: Sequence[Sequence[int]],
    begin: int,
    horizon: Horizon,
) -> Iterator[Wait]:
    """Yield readiness, order and barrier of a data-parallel job whose first activity is `begin`."""
    blocks, size = len(graph.blocks), len(graph.blocks) + len(graph.transfers)
    for iteration, row in enumerate(checking_deadline(levels)):
        at = begin + iteration * size
        for transfer in graph.transfers:
            after = at + blocks + transfer.bucket - 1
            for slot, table in enumerate(tables):
                if row[slot] >= transfer.bucket:
                    yield Wait(at + slot, after, 0, table[transfer.bucket - 1])
            if transfer.bucket > 1:
                yield Wait(after - 1, after)
        periods, following = divmod(iteration + 1, graph.iterations)
        if periods and horizon == "finite":
            continue
        # Transfers are in order, so the last one stands for all of them.
        ends = [*range(at, at + blocks), *([at + size - 1] if graph.transfers else [])]
        for before in ends:
            for block in range(blocks):
                yield Wait(before, begin + following * size + block, periods)


@dataclass(frozen=True, slots=True)
class TaskGraphDecision:
    """All that has to be chosen for one task-graph job.

    `starts`: start of each operation, by iteration, in microseconds.
    """

    gpus: Sequence[Gpu]
    starts: Sequence[Sequence[int]]


def assemble_task_graphs(
    operations: Operations, decisions: Sequence[TaskGraphDecision]
) -> tuple[TaskGraphJobPlan, ...]:
    """Return plans of task-graph jobs, one for each decision, with every end exactly its start plus its duration.

    `decisions`: GPUs and starts of each job with a task graph, in the instance's order.
    """
    plans = []
    for graph, decision in zip(operations.task_graphs, decisions, strict=True):
        network = ActivityNetwork(operations.routes, operations.horizon)
        lengths = [activity.duration_us for activity in network.operations_of(graph, decision.gpus)]
        iterations = []
        for row in decision.starts:
            done = [Execution(start, start + length) for start, length in zip(row, lengths, strict=True)]
            iterations.append(TaskGraphIteration(tuple(done[: graph.blocks]), tuple(done[graph.blocks :])))
        names = tuple(operations.cluster.gpu_name(*gpu) for gpu in decision.gpus)
        plans.append(TaskGraphJobPlan(graph.job.name, names, tuple(iterations)))
    return tuple(plans)

"""An activity network as lists of numbers, for whatever times it: successors, GPUs and links by number, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Gpu

JobLevels = Sequence[Sequence[int]]
"""Level of each worker of a data-parallel job, by iteration."""


class Arc(NamedTuple):
    """``start(after) + periods * T >= start(before) + length_us``."""

    before: int
    after: int
    length_us: int
    periods: int


class FlatActivities(NamedTuple):
    """Activities by number.

    `resources`: by activity, the GPUs and links that it occupies; none where it takes no time, for that overlaps
    nothing. `arcs`: what waits for what. Whatever waits for a period before it on the same GPU or link is left out: all
    use of it within one period is behind all of the period before (`repeating`). `opens, closes`: by activity, its
    holds as (GPU, bytes, the activity at the other end): those that begin with its start, and those that end with its
    end. `room`: by GPU, the bytes that slots and workers leave free; all its bytes where these are only there in time,
    and behind the GPUs then the units of other capacities that jobs hold (`ActivityNetwork.held`).
    `uses`: by activity, what it takes of cumulative capacities while it runs, as (capacity, amount), such as watts
    under a power cap; empty where there are none. `limits`: by capacity, the most that is taken of it at once.
    `residents`: by job, what it takes while present, as (GPU or other capacity, bytes or units, activations); empty
    where all jobs are always present.
    """

    duration_us: list[int]
    release_us: list[int]
    resources: list[tuple[int, ...]]
    arcs: list[Arc]
    opens: list[list[tuple[int, int, int]]]
    closes: list[list[tuple[int, int, int]]]
    room: list[int]
    job: list[int]
    iteration: list[int]
    uses: Sequence[Sequence[tuple[int, int]]] = ()
    limits: Sequence[int] = ()
    residents: Sequence[Sequence[tuple[int, int, int]]] = ()

    @property
    def fits_alone(self) -> bool:
        """Return whether every activity keeps all cumulative capacities, and every job what it holds, alone."""
        held = (size + most <= self.room[place] for own in self.residents for place, size, most in own)
        return all(held) and all(amount <= self.limits[capacity] for own in self.uses for capacity, amount in own)

    def successors(self) -> list[list[tuple[int, int]]]:
        """Return, by activity, what waits for it within one period, and how long after its start."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.duration_us]
        for before, after, length, periods in self.arcs:
            if periods == 0:
                found[before].append((after, length))
        return found

    def wait_counts(self) -> list[int]:
        """Return, by activity, how many waits it has for others within one period."""
        counts = [0] * len(self.duration_us)
        for arc in self.arcs:
            counts[arc.after] += arc.periods == 0
        return counts


def network_of(
    operations: Operations, gpus: Sequence[Sequence[Gpu]], levels: Sequence[JobLevels] = (), within_slots: bool = False
) -> ActivityNetwork:
    """Return the activity network of an instance, with data-parallel jobs before those with a task graph.

    `gpus`: by job, the GPU of each worker or slot.
    """
    network, count = ActivityNetwork(operations.routes, operations.horizon), len(operations.jobs)
    for job, workers, rows in zip(operations.jobs, gpus[:count], levels, strict=True):
        network.add_data_parallel(job, workers, rows)
    for graph, own in zip(operations.task_graphs, gpus[count:], strict=True):
        network.add_task_graph(graph, own, within_slots)
    capacities, names = operations.instance.scarce_capacities, operations.names
    network.held = [(own.units, [own.amounts.get(name, 0) for name in names]) for own in capacities]
    return network


def flatten(network: ActivityNetwork, in_time: bool = False) -> FlatActivities:
    """Return the activities of a network by number: GPUs first and links behind them, in the order of the cluster.

    `in_time`: whether memory counts in time: a job takes it from its first activity to its last one, and not all the
    time.
    """
    cluster = network.routes.cluster
    gpus = cluster.gpus.places
    number = {gpu: g for g, gpu in enumerate(gpus)}
    resources: list[tuple[int, ...]] = []
    for activity in checking_deadline(network.activities):
        used = [*(number[gpu] for gpu in activity.gpus), *(len(gpus) + link for link in activity.links)]
        resources.append(tuple(used) if activity.duration_us > 0 else ())
    room, residents = [network.room(gpu) for gpu in gpus], list[list[tuple[int, int, int]]]()
    if in_time:
        _add_own_resources(network, resources, len(gpus) + len(cluster.links))
        room = [*(cluster.servers[server].gpu_memory for server, _ in gpus), *(units for units, _ in network.held)]
        residents = [[(number[gpu], size, most) for gpu, size, most in own] for own in network.residents]
        for place, (_, amounts) in enumerate(network.held, len(gpus)):
            for own, amount in zip(residents, amounts, strict=True):
                own += [(place, amount, 0)] if amount else []
    durations = [activity.duration_us for activity in network.activities]
    opens: list[list[tuple[int, int, int]]] = [[] for _ in durations]
    closes: list[list[tuple[int, int, int]]] = [[] for _ in durations]
    for hold in network.holds:
        opens[hold.start].append((number[hold.gpu], hold.bytes, hold.end))
        closes[hold.end].append((number[hold.gpu], hold.bytes, hold.start))
    return FlatActivities(
        durations,
        [activity.release_us for activity in network.activities],
        resources,
        list(_arcs(network, durations, resources)),
        opens,
        closes,
        room,
        [activity.job for activity in network.activities],
        [activity.iteration for activity in network.activities],
        _draws(network),
        [cap.watts for cap in cluster.capacities],
        residents,
    )


def _add_own_resources(network: ActivityNetwork, resources: list[tuple[int, ...]], number: int) -> None:
    """Give activities that wait for none and occupy nothing a resource of their own, where they wait for memory."""
    waiting = {wait.after for wait in network.waits if wait.periods == 0}
    for activity, used in enumerate(resources):
        if not used and activity not in waiting:
            resources[activity] = (number,)
            number += 1


def _draws(network: ActivityNetwork) -> list[list[tuple[int, int]]]:
    """Return what each activity draws under each power cap; an empty list where the cluster has none."""
    cluster, found = network.routes.cluster, list[list[tuple[int, int]]]()
    names = [server.name for server in cluster.servers]
    under = [[k for k, cap in enumerate(cluster.capacities) if name in cap.servers] for name in names]
    for activity in network.activities if cluster.capacities else ():
        drawn: Counter[int] = Counter()
        for (server, _), watts in zip(activity.gpus, activity.watts, strict=False):
            drawn.update(dict.fromkeys(under[server], watts))
        found.append([(cap, watts) for cap, watts in drawn.items() if watts])
    return found


def _arcs(network: ActivityNetwork, durations: Sequence[int], resources: Sequence[tuple[int, ...]]) -> Iterator[Arc]:
    for before, after, periods, offset in checking_deadline(network.waits):
        if periods == 0 or set(resources[before]).isdisjoint(resources[after]):
            yield Arc(before, after, durations[before] if offset is None else offset, periods)


def one_iteration(graph: CompiledTaskGraph, room: Sequence[int]) -> FlatActivities:
    """Return one iteration of a job with its slots in place of GPUs, and with one length for all operations.

    `room`: by slot, the bytes that memory intervals may take.
    """
    size = graph.size
    opens: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
    closes: list[list[tuple[int, int, int]]] = [[] for _ in range(size)]
    for hold in graph.holds:
        opens[hold.start].append((hold.slot, hold.bytes, hold.end))
        closes[hold.end].append((hold.slot, hold.bytes, hold.start))
    arcs = [Arc(before, after, 1, 0) for before, after, lag in graph.edges if lag == 0]
    # Only the order on the slots matters to memory, so that transfers use nothing here.
    resources = [slots if operation < graph.blocks else () for operation, slots in enumerate(graph.takes_part)]
    zeros = [0] * size
    return FlatActivities([1] * size, zeros, resources, arcs, opens, closes, list(room), zeros, zeros)

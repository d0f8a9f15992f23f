"""Schedules whose jobs go elsewhere or take other levels, so that the loads of GPUs and links become alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from jigsaw_opt.solvers.engines.compiled import fastest, integers, run_in_parts
from jigsaw_opt.solvers.greedy.flat import exchange_scope
from jigsaw_opt.solvers.kernels.placement_annealing import anneal_placement, settle_placement
from jigsaw_opt.solvers.kernels.placement_state import (
    FIXED_SERVERS,
    FREE_WORKERS,
    WHOLE_JOB,
    PlacementGraph,
    PlacementState,
)
from jigsaw_opt.solvers.kernels.randomness import EXPONENTIALS, LARGEST_SEED
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.construction import level_caps
from jigsaw_opt.solvers.placement.levels import LevelPlan
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule

_STEPS, _FEW_STEPS = 200_000, 2_000
"""Steps after which work is counted, and between two checks of the clock where Python takes them."""
_BINDING = 0.995
"""Share of the objective from which on a load binds: with less, the circuit of some jobs is what must change."""
_HOT, _COLD = 2e-6, 1e-6
"""By how much the sum of squared excesses, as shares, may well rise at first and in the end: about that of a load a
thousandth too large. At more the placement would drift from the one that the sequence belongs to."""
_LINK_SHARE = 0.97
"""Target load of a link, as a share of that of a GPU: links idle more often, since a transfer waits for several blocks.
"""
_LINK_PRICES = (0.03, 0.1, 0.3)
"""Prices of the load of a link by itself; one is drawn, for how much links matter differs between instances."""
_SPARE_PLACES = 16
"""Number of workers that a GPU may have beyond those of the fullest one at first."""


class PlacementSearch:
    """Anneals where workers are and which levels they take, by the loads of GPUs and links."""

    def __init__(self, data: ProblemData, rng: random.Random) -> None:
        import networkx as nx

        self.data, self.rng = data, rng
        self._types = sorted({*data.layout.type_of})
        self._paths = _paths(data) if nx.is_forest(data.layout.routes.graph) else None
        jobs = data.operations.jobs
        self._depth = max(job.levels for job in jobs)
        self._stride = [job.slots + len(job.transfers) + 1 for job in jobs]
        strides = zip(jobs, self._stride, strict=True)
        self._base = [0, *accumulate(job.iterations * stride for job, stride in strides)]
        self._first = [0, *accumulate(job.slots for job in jobs)]
        self._table = [time for index in range(len(jobs)) for times in self._times(index) for time in times]

    def rebalanced(
        self, before: SequencedSchedule, share: float, steps: int, stop: Callable[[int], bool]
    ) -> SequencedSchedule | None:
        """Return a schedule in which the binding resource or job has changed, to be sequenced, or None.

        The schedule is None where there is nothing to change, or where the largest load cannot keep to the objective.

        The GPU or link of the largest load binds where the objective is not much more. Otherwise one of the jobs on the
        critical circuit goes to another server before all else.

        `share`: fall of the loads that is aimed at, as a share of the way from the largest one to the mean. `stop`:
        called now and then with the number of steps since; true ends the run.
        """
        (anneal, own), settle = fastest(anneal_placement), fastest(settle_placement)[0]
        graph, state = own(self._graph(before.assignments)), own(self._state(before))
        exponentials = own(EXPONENTIALS)
        count, largest, first = len(self.data.layout.gpus), int(settle(graph, state)), -1
        if largest < _BINDING * before.value:
            if not before.critical_jobs:
                return None
            first, share = self.rng.choice(before.critical_jobs), 0.0
        mean = sum(integers(state.load)[:count]) // count
        target = round(largest - share * max(0, largest - mean))
        for n, most in enumerate((target, round(_LINK_SHARE * target), before.value)):
            state.target[n] = most

        def run(done: int, count: int) -> tuple[int, int]:
            numbers = first if done == 0 else -1, done, count, steps, _HOT, _COLD
            anneal(graph, state, *numbers, exponentials)
            return count, count

        run_in_parts(run, steps, _STEPS, _FEW_STEPS if isinstance(state.gpu, list) else _STEPS, stop)
        largest = max(integers(state.load))
        return self._schedule(before, state) if largest <= before.value else None

    def _schedule(self, before: SequencedSchedule, state: PlacementState) -> SequencedSchedule | None:
        """Return the schedule with the jobs on their new GPUs, at their new levels."""
        gpus, used, level = integers(state.gpu), integers(state.used), integers(state.level)
        old, found, changed = integers(before.level), [], False
        for index, assignment in enumerate(before.assignments):
            own = gpus[self._first[index] : self._first[index + 1]]
            part = slice(self._base[index], self._base[index + 1])
            caps = level_caps(self.data.layout, assignment.demand, own, used)
            new: Assignment | None = assignment
            if own != assignment.gpus or level[part] != old[part]:
                new = self.data.placed(
                    index, own, LevelPlan(self._rows(index, level), fixed=True), caps, assignment.demand
                )
                changed = True
            elif caps != (assignment.caps or [assignment.job.levels] * len(own)):
                open_caps = None if min(caps) >= assignment.job.levels else caps
                new = replace(assignment, caps=open_caps)
            if new is None:
                return None
            found.append(new)
        return replace(before, assignments=found, level=state.level) if changed else None

    def _rows(self, index: int, level: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the levels of a job by iteration and slot."""
        slots = self.data.operations.jobs[index].slots
        begins = range(self._base[index], self._base[index + 1], self._stride[index])
        return tuple(tuple(level[at : at + slots]) for at in begins)

    def _times(self, index: int) -> Iterator[list[int]]:
        """Yield the durations of a block of a job by level, for each type of GPU."""
        job = self.data.operations.jobs[index]
        for gpu_type in self._types:
            yield _padded(job.blocks[0].duration_us.get(gpu_type, ()), self._depth)

    def _graph(self, assignments: Sequence[Assignment]) -> PlacementGraph:
        layout = self.data.layout
        paths = self._paths or [[] for _ in layout.servers]
        number = {gpu_type: k for k, gpu_type in enumerate(self._types)}
        jobs = self.data.operations.jobs
        return PlacementGraph(
            job=[index for index, job in enumerate(jobs) for _ in range(job.slots)],
            first=self._first,
            freedom=[self._freedom(each) for each in assignments],
            alone=[_alone(each, gpu_type) for each in assignments for gpu_type in self._types],
            table=self._table,
            scope=[exchange_scope(job) for job in jobs],
            contributors=[job.rule.min_contributors or 0 for job in jobs],
            depth=[job.levels for job in jobs],
            iterations=[job.iterations for job in jobs],
            base=self._base,
            stride=self._stride,
            exchange=[sum(map(sum, each.exchange)) if each.links else 0 for each in assignments],
            state_bytes=[job.state_bytes for job in jobs],
            activation_bytes=[size for job in jobs for size in _padded(job.activation_bytes, self._depth)],
            type_of=[number[gpu_type] for gpu_type in layout.type_of],
            server_of=layout.server_of,
            memory=layout.memory,
            gpu_at=[0, *accumulate(map(len, layout.on_server))],
            part=list(layout.routes.component),
            path_at=[0, *accumulate(map(len, paths))],
            path=[link for path in paths for link in path],
        )

    def _freedom(self, assignment: Assignment) -> int:
        """Return what a job may do.

        Where links do not form a forest, or routes keep a policy, a job that uses links keeps its servers.
        """
        if len(assignment.gpus) == 1:
            return FREE_WORKERS
        if not assignment.links:
            return WHOLE_JOB
        return FREE_WORKERS if self._paths is not None and assignment.job.route_policy is None else FIXED_SERVERS

    def _state(self, before: SequencedSchedule) -> PlacementState:
        layout, assignments = self.data.layout, before.assignments
        gpu = [gpu for each in assignments for gpu in each.gpus]
        count = len(layout.gpus)
        on = [0] * count
        for g in gpu:
            on[g] += 1
        widest = max(len(each.gpus) for each in assignments)
        return PlacementState(
            gpu=gpu,
            level=list(map(int, before.level)),
            blocks=[0] * (len(gpu) * self._depth),
            occupancy=[0] * count,
            occupant=[0] * (count * (max(on) + _SPARE_PLACES)),
            used=[0] * count,
            below=[0] * (len(assignments) * layout.links),
            load=[0] * (count + layout.links),
            target=[1, 1, 1],
            link_price=[self.rng.choice(_LINK_PRICES)],
            moved=[0] * (2 * widest + 1),
            origin=[0] * (2 * widest),
            rng=[self.rng.randint(1, LARGEST_SEED)],
            temperature=[0.0],
        )


def _padded(values: Sequence[int], width: int) -> list[int]:
    return [*values, *[0] * (width - len(values))]


def _alone(assignment: Assignment, gpu_type: str) -> int:
    """Return the least time that a job takes with workers on a type of GPU; -1 where they may not be."""
    job = assignment.job
    if gpu_type not in assignment.demand.slot_us:
        return -1
    table = job.blocks[0].duration_us[gpu_type]
    exchange = sum(map(sum, assignment.exchange))
    return job.release_us + max(job.iterations * table[-1], job.iterations * table[0] + exchange)


def _paths(data: ProblemData) -> list[list[int]]:
    """Return the links from each server to the root of its tree."""
    import networkx as nx

    graph = data.layout.routes.graph
    above: dict[str, tuple[str, int]] = {}
    for part in nx.connected_components(graph):
        root = min(part)
        for parent, child in nx.bfs_edges(graph, root):
            above[child] = parent, graph.edges[parent, child]["link"]
    found = []
    for server in data.layout.servers:
        node, path = server.name, []
        while node in above:
            node, link = above[node]
            path.append(link)
        found.append(path)
    return found

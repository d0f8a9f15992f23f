"""The compiled instance, as all moves of a search see it."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.assignments.assignment import Assignment, AssignmentTable
from jigsaw_opt.solvers.assignments.layout import Demand, Layout, shapes
from jigsaw_opt.solvers.assignments.levels import LevelPlan
from jigsaw_opt.solvers.params import SearchParams


class ProblemData(AssignmentTable):
    """An instance with its layout, demands and assignments.

    `params`: parameters of the search; their defaults unless said.
    """

    def __init__(
        self, operations: Operations, layout: Layout, demands: Sequence[Demand], params: SearchParams | None = None
    ) -> None:
        self.params = params or SearchParams()
        super().__init__(operations, layout, demands)
        self._shapes: dict[int, tuple[Demand, ...]] = {}
        self.of_width: dict[int, list[int]] = {}
        for index, job in enumerate(operations.jobs):
            self.of_width.setdefault(job.slots, []).append(index)
        self.number = {operations.cluster.gpu_name(*gpu): n for n, gpu in enumerate(layout.gpus)}

    def ring(self, job: OperationGraph, gpus: Sequence[int]) -> Channel:
        """Return the channel of a job that a plan has on these GPUs."""
        channel = self.channel(job, gpus)
        if channel is None:
            raise ValueError("no path joins all servers of a job")
        return channel

    def shapes(self, index: int) -> tuple[Demand, ...]:
        """Return the demands of a job, with its levels in every profile."""
        demand = self.demands[index]
        if id(demand) not in self._shapes:
            self._shapes[id(demand)] = shapes(demand)
        return self._shapes[id(demand)]

    def planned(
        self, index: int, gpus: Sequence[int], rows: Sequence[Sequence[int]], caps: Sequence[int], demand: Demand
    ) -> Assignment:
        """Return a job on the GPUs of a plan, with its levels by iteration and slot."""
        assignment = self.placed(index, gpus, LevelPlan(tuple(map(tuple, rows)), fixed=True), caps, demand)
        if assignment is None:
            raise ValueError(f"no path joins all servers of job {self.operations.jobs[index].name}")
        return assignment

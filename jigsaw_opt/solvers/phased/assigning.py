"""Levels of data-parallel jobs that have their GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jigsaw_opt.solvers.assignments.assignment import Assignment
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.state.partial_placement import PartialPlacement

__all__ = ["assigned"]


def assigned(data: ProblemData, placements: Mapping[str, Sequence[str]]) -> list[Assignment] | None:
    """Return each job on its GPUs, with levels that memory admits once all are placed; None where one finds none.

    `placements`: by name of a job, the names of its workers' GPUs.
    """
    placement = PartialPlacement(data, rigid=False)
    for index, job in enumerate(data.operations.jobs):
        assignment = placement.assignment(index, [data.number[gpu] for gpu in placements[job.name]])
        if assignment is None:
            return None
        placement.place(index, assignment, [max(column) for column in zip(*assignment.plan.rows, strict=True)])
    return placement.resolved()

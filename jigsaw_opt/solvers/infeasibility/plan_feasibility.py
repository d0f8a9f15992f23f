"""Whether there is a plan that keeps every rule, by the exact model and within a limit on work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat import build
from jigsaw_opt.formulations.cpsat.size import interval_count, readiness_count
from jigsaw_opt.formulations.timetable.windows import serial_limit, windows
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.engines.cpsat import PRESOLVED_NUMBERS, new_solver
from jigsaw_opt.solvers.engines.magnitude import engine_excess, progress_sum
from jigsaw_opt.solvers.engines.stoppable import run_stoppable

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel

_MOST_INTERVALS = 10_000
"""With more optional intervals the model takes the engine longer than an explanation is worth."""
_MOST_READINESS = 100_000
"""The same for conditions of readiness."""
_INTERVALS_PER_UNIT = 5_000
"""Intervals that are built in about the time of a deterministic unit of the engine's work."""


class PlanCheck:
    """Asks the exact model whether an instance has any plan, guarantees kept, as long as its work lasts.

    The answers are the same on every machine. They are open without OR-Tools, above a size, for numbers beyond the
    engine's, for power caps beside jobs with a task graph, and where only plans with moves are left.

    `work`: deterministic units of work for all questions together.
    """

    def __init__(self, work: float, most_work: float) -> None:
        self._left, self._most_work = work, most_work

    def __call__(self, operations: Operations) -> bool | None:
        """Return whether there is a plan, None where that stays open."""
        limit = largest_objective(operations)
        intervals = interval_count(operations)
        building = intervals / _INTERVALS_PER_UNIT
        if self._left <= building or intervals > _MOST_INTERVALS or find_spec("ortools") is None:
            return None
        if engine_excess(max(limit, progress_sum(operations))) or readiness_count(operations) > _MOST_READINESS:
            return None
        model = build(operations, windows(operations, limit), 0, limit).proto
        work = min(self._most_work, self._left - building)
        answer, spent = has_solution(model, work, "plan check", presolve=limit < PRESOLVED_NUMBERS)
        self._left -= building + spent
        # The model has no plans with moves, so that it does not refute an instance of jobs that may move.
        return answer or (None if operations.instance.moving_jobs else answer)


def has_solution(model: CpModel, work: float, name: str, presolve: bool = True) -> tuple[bool | None, float]:
    """Return whether a model has a solution, None where that stays open, and the deterministic units that it took.

    `work`: units after which it stays open. `name`: what the engine is asked for.
    """
    from ortools.sat.python import cp_model

    solver = new_solver()
    solver.parameters.max_deterministic_time = work
    solver.parameters.stop_after_first_solution = True
    solver.parameters.cp_model_presolve = presolve
    status = run_stoppable(lambda: solver.solve(model), solver.stop_search, name)
    told = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}
    return told.get(status), solver.response_proto.deterministic_time


def largest_objective(operations: Operations, guaranteed: bool = True) -> int:
    """Return an objective that some plan does not exceed, if there is any plan."""
    most, limit = serial_limit(operations), operations.objective_limit if guaranteed else None
    return most if limit is None else min(most, limit)

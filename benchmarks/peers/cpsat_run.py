"""One run of CP-SAT on a model that is already built, with the engine's own defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attempt import Attempt

from jigsaw_opt.problem.compiled.timetable import Timetable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Value = Callable[["cp_model.IntVar"], int]


def run(model: cp_model.CpModel, attempt: Attempt, read: Callable[[Value], Timetable]) -> None:
    """Search until the proof or the limit; offers every solution, which `read` makes of values, and keeps the bound."""
    from ortools.sat.python import cp_model

    class Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            attempt.offer(read(self.value))

    if attempt.remaining == 0.0:
        attempt.note = "the model was not built in time"
        return
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = attempt.threads
    solver.parameters.random_seed = attempt.seed
    solver.parameters.max_time_in_seconds = attempt.remaining
    status = solver.solve(model, Incumbents())
    attempt.note = solver.status_name(status).lower()
    if math.isfinite(solver.best_objective_bound) and status != cp_model.INFEASIBLE:
        attempt.bound = math.ceil(solver.best_objective_bound - 1e-6)

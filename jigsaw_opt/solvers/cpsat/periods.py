"""The exact model with jobs with a task graph on the cyclic horizon, asked for one period after the other."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.cpsat.model import build_model, engine_for, run_engine
from jigsaw_opt.solvers.cpsat.targets import Targets
from jigsaw_opt.solvers.infeasibility import minimal_conflict
from jigsaw_opt.solvers.infeasibility.plan_feasibility import largest_objective
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["prove_period"]


def prove_period(
    solve_state: SolveState, operations: Operations, workers: int, work: float = math.inf, seconds: float = math.inf
) -> StoppedBy | None:
    """Find the least period of a cyclic instance with jobs with a task graph, until there is a reason to stop.

    `work`: limit in the engine's deterministic seconds.
    """
    from ortools.sat.python import cp_model

    end = solve_state.seconds + seconds
    if solve_state.objective is None:
        status, work = _ask(solve_state, operations, largest_objective(operations), workers, work, seconds)
        if status == cp_model.INFEASIBLE:
            # What is feasible at some period is so at this one (specification: cyclic-horizon).
            solve_state.refute(partial(minimal_conflict, operations))
        if solve_state.objective is None:
            return solve_state.reason() or StoppedBy.TIME
    work -= Targets(solve_state, operations, workers).bisect(work, end - solve_state.seconds)
    while solve_state.reason() is None and work > 0 and (left := end - solve_state.seconds) > 0:
        target = solve_state.objective - 1
        status, work = _ask(solve_state, operations, target, workers, work, left)
        if status == cp_model.INFEASIBLE:
            solve_state.raise_bound(target + 1)
        elif status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solve_state.objective > target:
            break  # Nothing was found, or a condition refused it.
    return solve_state.reason() or StoppedBy.TIME


def _ask(
    solve_state: SolveState, operations: Operations, period: int, workers: int, work: float, seconds: float
) -> tuple[cp_model.CpSolverStatus, float]:
    """Ask for a plan of a period, and offer it; return what the engine says, and the work that is left."""
    from ortools.sat.python import cp_model

    model = build_model(solve_state, operations, period, period)
    if solve_state.best is not None:
        model.hint(solve_state.best)
    solver = engine_for(solve_state, operations, workers, work)
    solver.parameters.max_time_in_seconds = min(seconds, solver.parameters.max_time_in_seconds)
    status = run_engine(solve_state, solver, model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        solve_state.offer(model.plan(solver.value))
    return status, work - solver.response_proto.deterministic_time

"""The exact model of an instance's horizon, and the engine for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat import CpSatModel, build
from jigsaw_opt.formulations.cpsat.size import interval_count
from jigsaw_opt.formulations.timetable.windows import windows
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.engines.cpsat import PRESOLVED_NUMBERS, configure, new_solver
from jigsaw_opt.solvers.infeasibility.plan_feasibility import largest_objective
from jigsaw_opt.solvers.solve_state import SolveState

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MANY_INTERVALS = {"finite": 2_000, "cyclic": 4_000}
"""Number of intervals from which probing and repeated presolve take seconds before the search, and gain it little."""


def is_small(operations: Operations) -> bool:
    """Return whether the presolve takes less than seconds; of larger models nearly all targets are left open."""
    return interval_count(operations) < _MANY_INTERVALS[operations.horizon]


def build_model(solve_state: SolveState, operations: Operations, bound: int, limit: int | None) -> CpSatModel:
    """Build the model of all plans whose objective is between two limits.

    `limit`: largest objective; None for no limit.
    """
    most = largest_objective(operations) if limit is None else limit
    bound = min(bound, most)
    solve_state.leave_out_model("the time ran out while it was being built")
    model = build(operations, windows(operations, most, solve_state.deadlines(most)), bound, most)
    solve_state.record_model()
    return model


def engine_for(solve_state: SolveState, operations: Operations, workers: int, work: float) -> cp_model.CpSolver:
    """Return the engine for a model of the instance, limited by what is left of the time limit.

    `work`: limit in deterministic seconds; infinite for none.
    """
    solver, seconds = new_solver(workers, solve_state.options.seed), solve_state.remaining
    largest = largest_objective(operations) if solve_state.objective is None else solve_state.objective
    solver.parameters.cp_model_presolve = largest < PRESOLVED_NUMBERS
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    if work < math.inf:
        solver.parameters.max_deterministic_time = work
    if not is_small(operations):
        solver.parameters.max_presolve_iterations = 1
        solver.parameters.cp_model_probing_level = 0
    return solver


def run_engine(
    solve_state: SolveState,
    solver: cp_model.CpSolver,
    model: CpSatModel,
    callback: cp_model.CpSolverSolutionCallback | None = None,
    until: float = math.inf,
) -> cp_model.CpSolverStatus:
    """Run an engine on a model until it ends or the solve does, with what the caller asks of engines.

    `until`: seconds after the start of the solve at which the engine is stopped, beside the limits of the solve.
    """
    configure(solver, solve_state.options.engine_parameters, solve_state.engine_listener)
    return solve_state.run(lambda: solver.solve(model.proto, callback), solver.stop_search, until)

"""The search on CP-SAT: bounds and greedy first, then the exact model from there on, period after period if cyclic."""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat import CpSatModel
from jigsaw_opt.formulations.cpsat.size import channel_count, interval_count, readiness_count
from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK, raise_bounds
from jigsaw_opt.solvers.cpsat.model import build_model, engine_for, is_small, run_engine
from jigsaw_opt.solvers.cpsat.targets import Targets
from jigsaw_opt.solvers.engines.magnitude import EXACT_FLOATS, engine_excess, first_excess, progress_sum
from jigsaw_opt.solvers.greedy import offer_greedy
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict
from jigsaw_opt.solvers.infeasibility.plan_feasibility import largest_objective
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def _prove_period(
    solve_state: SolveState, operations: Operations, workers: int, work: float, seconds: float
) -> StoppedBy | None:
    """Find the least period of a cyclic instance, one period after the other, until there is a reason to stop."""
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
            solve_state.raise_bound(target + 1, engine="CP-SAT")
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


_MOST_INTERVALS = 60_000
"""Above so many optional intervals the engine's presolve takes gigabytes, and its search finds nothing."""
_MOST_TASK_GRAPH_INTERVALS = 100_000
"""The same limit for jobs with a task graph."""
_MOST_CHANNELS = 20_000
"""Largest number of conditions in the model of task graphs, which has one for each combination of servers."""
_MOST_READINESS = 2_000_000
"""Largest number of readiness conditions; more of them take gigabytes, too, as in models of thousands of segments."""
_INTERVALS_PER_SECOND = 5_000
"""Intervals that a slow core builds in about a second."""
_CYCLIC_STARTS = 3
"""Seeds that the heuristic is tried from on a cyclic horizon."""
_TARGETS_SHARE, _PATIENCE = 0.5, 2
"""Share of the limits for targets, before the model of all plans begins; and how many of them task-graph jobs leave
open before orders."""
_ORDERS_SHARE, _ORDERS_EFFORT = 0.6, 30.0
"""Share of the limits for orders of task-graph jobs without a relaxation, and most deterministic seconds of that."""


def solve_exactly(solve_state: SolveState, operations: Operations) -> StoppedBy | None:
    """Solve an instance: greedy, and where its plan does not meet the bound, the exact model.

    Returns why it ended, or None where it ran to its end.
    """
    solve_state.leave_out_model()
    work = math.inf if solve_state.options.work_limit is None else solve_state.options.work_limit
    _warm_start(solve_state, operations)
    weighted = operations.objective == "weighted_completion" and not operations.task_graphs
    if weighted and solve_state.reason() is None and fits(solve_state, operations):
        # What bounds say of the ends of single jobs makes the model smaller.
        raise_bounds(solve_state, operations, min(BOUND_WORK, work))
    ended = solve_state.reason() or explore(solve_state, operations, solve_state.options.threads, work)
    return ended or (None if solve_state.model_built else StoppedBy.MODEL_TOO_LARGE)


def explore(
    solve_state: SolveState, operations: Operations, workers: int, work: float, seconds: float = math.inf
) -> StoppedBy | None:
    """Run the exact model from the current incumbent and bound, as long as there is no reason to stop.

    Why it ended; None where the model is too large to be built, or the incumbent is the best there is.

    `solve_state`: the solve under way; it may receive plans and bounds from elsewhere at the same time. `work`: limit
    in the engine's deterministic seconds. `seconds`: limit of the clock for the model of all plans, beside those of the
    solve.
    """
    if not fits(solve_state, operations):
        return None
    if operations.horizon == "cyclic":
        return _prove_period(solve_state, operations, workers, work, seconds)
    # Loading the engine takes longer than many a share of the limits.
    import_module("ortools.sat.python.cp_model")
    end = solve_state.seconds + min(seconds, math.inf if solve_state.remaining is None else solve_state.remaining)
    # Only the relaxation bounds weighted ends of task-graph jobs well.
    relaxed = bool(operations.task_graphs) and operations.objective == "weighted_completion"
    share = _TARGETS_SHARE if is_small(operations) and not relaxed else 0.0
    targets, spent = Targets(solve_state, operations, workers), 0.0
    if operations.task_graphs:
        # Orders on GPUs make plans of these long, more than their work. Few targets tell how good the plan is; the best
        # one is then found and proven sooner than targets are.
        spent = targets.bisect(share * work, share * (end - solve_state.seconds), _PATIENCE) if share else 0.0
        effort = min(_ORDERS_SHARE * (work - spent), _ORDERS_EFFORT)
        _search(solve_state, operations, workers, effort, _ORDERS_SHARE * (end - solve_state.seconds), orders=True)
        work -= effort
    if share:
        spent = targets.bisect(spent + share * (work - spent), share * (end - solve_state.seconds))
    return _search(solve_state, operations, workers, max(0.0, work - spent), end - solve_state.seconds)


def _warm_start(solve_state: SolveState, operations: Operations) -> None:
    """Offer the heuristic's plan; the best of a few on a cyclic horizon, where one start more often decides."""
    seed = solve_state.options.seed
    for start in range(_CYCLIC_STARTS if operations.horizon == "cyclic" and not operations.task_graphs else 1):
        if not offer_greedy(solve_state, operations, seed + start) or solve_state.reason() is not None:
            break


def fits(solve_state: SolveState, operations: Operations) -> bool:
    """Return whether the model can be built, and be built in time; record why not."""
    reason = _misfit(operations, solve_state.remaining)
    if reason is not None:
        solve_state.leave_out_model(reason)
    return reason is None


def _misfit(operations: Operations, seconds: float | None) -> str | None:
    """Return why the model cannot be built within so many seconds; None where it can."""
    intervals = interval_count(operations)
    most = _MOST_TASK_GRAPH_INTERVALS if operations.task_graphs else _MOST_INTERVALS
    excess = first_excess(
        ("optional intervals", intervals, most),
        ("conditions of readiness", readiness_count(operations), _MOST_READINESS),
        ("combinations of servers for one transfer", channel_count(operations), _MOST_CHANNELS),
        ("millionths of progress", progress_sum(operations), EXACT_IN_64_BITS),
    ) or engine_excess(serial_limit(operations))
    building = intervals / _INTERVALS_PER_SECOND
    if excess is None and seconds is not None and building > seconds:
        return f"{intervals:,} optional intervals take about {building:.1f} s to build, and {seconds:.1f} s are left"
    return excess


def _search(
    solve_state: SolveState, operations: Operations, workers: int, work: float, seconds: float, orders: bool = False
) -> StoppedBy | None:
    """Run the engine on the model of all plans; with `orders`, without a relaxation and strong on orders on a GPU."""
    from ortools.sat.python import cp_model

    if solve_state.reason() is not None:
        return solve_state.reason()
    model = build_model(solve_state, operations, solve_state.bound, solve_state.objective)
    if solve_state.best is not None:
        model.hint(solve_state.best)
    solver = engine_for(solve_state, operations, workers, work)
    if orders:
        solver.parameters.linearization_level = 0
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.use_strong_propagation_in_disjunctive = True
    # One thread in turn for all of the engine's strategies finds more than its default one alone, but it does not keep
    # to a limit of work.
    solver.parameters.interleave_search = workers == 1 and work == math.inf
    until = math.inf
    if solver.parameters.interleave_search:
        # With a limit of its own it ends up to 40 % before it; it is stopped from outside.
        until = solve_state.seconds + min(seconds, solver.parameters.max_time_in_seconds)
        solver.parameters.max_time_in_seconds = math.inf
    else:
        solver.parameters.max_time_in_seconds = min(seconds, solver.parameters.max_time_in_seconds)
    solver.best_bound_callback = lambda bound: solve_state.raise_bound(_proven(bound), engine="CP-SAT")
    incumbents = _incumbents(solve_state, model)
    status = run_engine(solve_state, solver, model, incumbents, until)
    # Under a condition the engine's best plan may have been refused.
    if status == cp_model.OPTIMAL and solve_state.objective is not None and not solve_state.conditions:
        solve_state.raise_bound(solve_state.objective, engine="CP-SAT")
    if status == cp_model.INFEASIBLE and solve_state.best is None:
        solve_state.refute(partial(minimal_conflict, operations))
    return solve_state.reason() or (StoppedBy.TIME if status in (cp_model.FEASIBLE, cp_model.UNKNOWN) else None)


def _incumbents(solve_state: SolveState, model: CpSatModel) -> cp_model.CpSolverSolutionCallback:
    """Return the callback that offers every solution of the engine."""
    from ortools.sat.python import cp_model

    class Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if not solve_state.ended:
                solve_state.offer(model.plan(self.value))

    return Incumbents()


def _proven(bound: float) -> int:
    """Return the integer that the engine's bound proves; beyond the exact floats, one that rounding did not raise."""
    return math.ceil(bound - 1e-6) if abs(bound) < EXACT_FLOATS else math.floor(math.nextafter(bound, -math.inf))

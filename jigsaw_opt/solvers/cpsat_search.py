"""The search on CP-SAT, the same for both horizons: bounds and greedy first, then the exact model from there on."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from jigsaw_opt.formulations import cpsat_cycle, cpsat_timetable
from jigsaw_opt.formulations.cpsat_timetable import interval_count, serial_limit, windows
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.engines.cpsat import LARGEST_NUMBER, new_solver
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.infeasibility import minimal_conflict
from jigsaw_opt.solvers.result import Result, StoppedBy

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["explore", "fits", "solve_exactly"]

Model = cpsat_timetable.Model | cpsat_cycle.Model

_MOST_INTERVALS = 60_000
"""Above so many optional intervals the engine's presolve takes gigabytes, and its search finds nothing."""
_INTERVALS_PER_SECOND = 5_000
"""Building takes about a second for so many of them on a slow core."""
_MANY_INTERVALS = 2_000
"""From here on probing and repeated presolve take seconds before the search begins, and gain it little."""
_CYCLIC_STARTS = 3
"""Seeds that the heuristic is tried from on a cyclic horizon."""
_QUESTION_WORK = 6.0
"""Deterministic seconds for one period; a question that takes longer is left to the model of all periods."""
_PRESOLVED_NUMBERS = 2**40
"""With larger limits the engine's presolve loses solutions by a microsecond (seen in OR-Tools 9.15 at 2^52)."""
_EXACT_FLOATS = 2**53
"""Integers that the engine's floating-point bound states exactly."""


def solve_exactly(control: Control, pieces: Pieces) -> Result:
    """Solve an instance: greedy, and where its plan does not meet the bound, the exact model.

    Parameters
    ----------
    control
        The solve under way.
    pieces
        The instance, cut.
    """
    _warm_start(control, pieces)
    work = math.inf if control.options.work_limit is None else control.options.work_limit
    ended = explore(control, pieces, control.options.workers, work) if control.reason() is None else None
    return control.result(control.reason() or ended or StoppedBy.COMPLETED, engines=["ortools"])


def explore(control: Control, pieces: Pieces, workers: int, work: float, seconds: float = math.inf) -> StoppedBy | None:
    """Run the exact model from the incumbent and the bound at hand, as long as there is no reason to stop.

    Parameters
    ----------
    control
        The solve under way; it may receive plans and bounds from elsewhere at the same time.
    pieces
        The instance, cut.
    workers
        Number of the engine's threads.
    work
        Limit in the engine's deterministic seconds.
    seconds
        Limit of the clock for the model of all plans, beside those of the solve.

    Returns
    -------
    StoppedBy or None
        Why it ended; None where the model is too large to be built, or the incumbent is the best there is.
    """
    if not fits(control, pieces):
        return None
    if pieces.horizon == "cyclic":
        work -= _bisect(control, pieces, workers, work)
        if control.reason() is not None:
            return control.reason()
    model = build_model(pieces, control.bound, control.objective)
    if control.best is not None:
        model.hint(control.best)
    return _search(control, pieces, model, workers, max(0.0, work), seconds)


def _warm_start(control: Control, pieces: Pieces) -> None:
    """Offer the heuristic's plan; the best of a few on a cyclic horizon, where one start more often decides."""
    seed = control.options.seed
    for start in range(_CYCLIC_STARTS if pieces.horizon == "cyclic" else 1):
        timetable = greedy_timetable(pieces, seed + start)
        if timetable is None:
            break
        control.offer(timetable)
        if control.reason() is not None:
            break


def _bisect(control: Control, pieces: Pieces, workers: int, work: float) -> float:
    """Close in on the least period from both sides, as long as each question is answered with little work.

    A plan of period ``T`` can be stretched to any longer one (``docs/cpsat_cycle.md``), so a period that is
    proven impossible rules out all below it. A fixed period is decided far sooner than a variable one.
    Returns the deterministic seconds spent, of `work` at most.
    """
    from ortools.sat.python import cp_model

    spent = 0.0
    while control.reason() is None and control.objective is not None and spent < work:
        period = (control.bound + control.objective - 1) // 2
        solver = _engine(control, pieces, workers, min(_QUESTION_WORK, work - spent))
        model = build_model(pieces, period, period)
        status = control.run(partial(solver.solve, model.proto), solver.stop_search)
        spent += solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            control.raise_bound(period + 1)
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            control.offer(model.plan(solver.value))
        else:
            break
    return spent


def build_model(pieces: Pieces, bound: int, objective: int | None) -> Model:
    """The model of the instance's horizon: plans between `bound` and the objective of a known plan, if there is one."""
    limit = _limit(pieces, objective)
    build: Callable[..., Model] = cpsat_cycle.build if pieces.horizon == "cyclic" else cpsat_timetable.build
    return build(pieces, windows(pieces, limit), bound, limit)


def _limit(pieces: Pieces, objective: int | None) -> int:
    """Largest objective of interest: that of a known plan, or one that some plan reaches if there is any."""
    return serial_limit(pieces) if objective is None else objective


def fits(control: Control, pieces: Pieces) -> bool:
    """Whether the model can be built, and be built in time."""
    count, remaining = interval_count(pieces), control.remaining
    if count > _MOST_INTERVALS or serial_limit(pieces) >= LARGEST_NUMBER:
        return False
    return remaining is None or count <= remaining * _INTERVALS_PER_SECOND


def _search(
    control: Control, pieces: Pieces, model: Model, workers: int, work: float, seconds: float
) -> StoppedBy | None:
    from ortools.sat.python import cp_model

    solver = _engine(control, pieces, workers, work)
    solver.parameters.max_time_in_seconds = min(seconds, solver.parameters.max_time_in_seconds)
    solver.best_bound_callback = lambda bound: control.raise_bound(_proven(bound))
    incumbents = _incumbents(control, model)
    status = control.run(lambda: solver.solve(model.proto, incumbents), solver.stop_search)
    if status == cp_model.OPTIMAL and control.objective is not None:
        control.raise_bound(control.objective)
    if status == cp_model.INFEASIBLE and control.best is None:
        control.refute(minimal_conflict(pieces))
    return control.reason() or (StoppedBy.TIME if status in (cp_model.FEASIBLE, cp_model.UNKNOWN) else None)


def _engine(control: Control, pieces: Pieces, workers: int, work: float) -> cp_model.CpSolver:
    """The engine for a model of the instance, with `work` deterministic seconds."""
    solver, seconds = new_solver(workers, control.options.seed), control.remaining
    solver.parameters.cp_model_presolve = _limit(pieces, control.objective) < _PRESOLVED_NUMBERS
    # One thread in turn for all of the engine's strategies finds more than its default one alone, but it does not keep
    # to a limit of work.
    solver.parameters.interleave_search = workers == 1 and work == math.inf
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    if work < math.inf:
        solver.parameters.max_deterministic_time = work
    if pieces.horizon == "cyclic":
        _propagate_strongly(solver)
    if interval_count(pieces) >= _MANY_INTERVALS:
        solver.parameters.max_presolve_iterations = 1
        solver.parameters.cp_model_probing_level = 0
    return solver


def _propagate_strongly(solver: cp_model.CpSolver) -> None:
    """Few pieces on a circle are decided by the orders that their neighbours leave, which these rules find.

    ``use_dynamic_precedence_in_disjunctive`` finds more, and ends the process in OR-Tools 9.15.
    """
    solver.parameters.use_strong_propagation_in_disjunctive = True
    solver.parameters.use_precedences_in_disjunctive_constraint = True


def _incumbents(control: Control, model: Model) -> cp_model.CpSolverSolutionCallback:
    """Callback that offers every solution of the engine."""
    from ortools.sat.python import cp_model

    class Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            control.offer(model.plan(self.value))

    return Incumbents()


def _proven(bound: float) -> int:
    """Integer that the engine's bound proves; beyond the exact floats, one that rounding cannot have raised."""
    return math.ceil(bound - 1e-6) if abs(bound) < _EXACT_FLOATS else math.floor(math.nextafter(bound, -math.inf))

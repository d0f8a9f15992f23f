"""`portfolio`: search for plans, bounds and the exact model, side by side on one incumbent and one bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from jigsaw_opt.problem.clock import in_context
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK, raise_bounds, raise_bounds_for
from jigsaw_opt.solvers.greedy.heuristic import require_size, timetables
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import OrtoolsSolver

if TYPE_CHECKING:
    from jigsaw_opt.solvers.search.side_searches import SideSearches

_LONG_BOUND_WORK = 10.0
"""Seconds of a usual core for the stronger bounds where the exact model does not fit."""
_FIRST_BOUND_WORK, _SECOND_BOUND_WORK = 0.3, 1.0
"""The same before targets of makespan or period are put to a small model, and once one of them is left open.

Larger cyclic instances have the first alone."""
_BOUND_SHARE, _FIRST_SHARE, _SEARCH_SHARE = 0.4, 0.05, 0.4
"""Share of the limits for bounds; on one thread, for a first run of a small model, and of what is left for search."""
_EXACT_SHARE = 0.35
"""Share of a time limit after which searches take the place of a model too large for targets."""


@dataclass(frozen=True, slots=True)
class Portfolio(OrtoolsSolver):
    """Search, bounds and the exact model together.

    With two threads or more, one proves and the others search, in processes of their own where the solve takes longer
    than a second; each sees what the others find. With one thread, the search has the first share of the time and the
    exact model the rest, and the same seed gives the same plan.
    """

    name: str = "portfolio"
    display_name: str = "search, bounds and the exact model side by side; any size, both horizons"

    takes: ClassVar[tuple[str, ...]] = (*LIMITS, "params", "ray")

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance."""
        require_size(solve_state.operations)
        solve_state.leave_out_model()
        run: Callable[[SolveState, Operations], StoppedBy | None]
        options = solve_state.options
        run = _side_by_side if options.threads > 1 or options.ray is not None else _in_turn
        return solve_state.conclude(lambda: run(solve_state, solve_state.operations), engines=["ortools"])


PORTFOLIO = Portfolio()
"""The solver registered as ``portfolio``."""


def _side_by_side(solve_state: SolveState, operations: Operations) -> StoppedBy | None:
    """Prove in another thread, and search in processes and, until these begin and once proving ends, in this thread."""
    from jigsaw_opt.solvers.cpsat.model import is_small
    from jigsaw_opt.solvers.search.driver import Driver
    from jigsaw_opt.solvers.search.moves.other_horizon import OtherHorizon
    from jigsaw_opt.solvers.search.side_searches import SideSearches

    # Of small instances this search leaves the core to the exact model, so that another one has to make all moves.
    first = OtherHorizon if operations.horizon == "cyclic" and not is_small(operations) else None
    search, limit = Driver(solve_state), solve_state.options.work_limit
    work, threads = math.inf if limit is None else limit, solve_state.options.threads
    with (
        SideSearches(solve_state, search.begun, first) as others,
        ThreadPoolExecutor(1, thread_name_prefix="jigsaw-proof") as pool,
    ):
        proof = pool.submit(in_context(partial(_prove, solve_state, operations, threads, work, others)))
        # Threads of one interpreter hinder each other.
        reason = search.run(rests=lambda: others.searching and not proof.done())
        ended = proof.result()
        others.wait()
    return ended if reason is StoppedBy.COMPLETED else reason


def _in_turn(solve_state: SolveState, operations: Operations) -> StoppedBy:
    from jigsaw_opt.solvers.cpsat.model import is_small
    from jigsaw_opt.solvers.cpsat.search import explore, fits
    from jigsaw_opt.solvers.search.driver import Driver

    exact = fits(solve_state, operations)
    _require_plan(solve_state, operations)
    limits = solve_state.options.work_limit, solve_state.remaining
    work, seconds = (math.inf if limit is None else limit for limit in limits)
    raise_bounds_for(solve_state, operations, _BOUND_SHARE, BOUND_WORK if exact else _LONG_BOUND_WORK)
    limited, small = min(work, seconds) < math.inf, is_small(operations)
    if exact and small and limited:
        # The smallest instances are proven quickly.
        explore(solve_state, operations, 1, _FIRST_SHARE * work, _FIRST_SHARE * seconds)
    # Within limits a larger model takes time from the search and proves nothing, except that there is no plan.
    if exact and not small and solve_state.best is not None and limited:
        solve_state.leave_out_model(
            "with one thread and a limit, all time goes to the search of an instance of this size"
        )
        exact = False
    reason = Driver(solve_state).run(_SEARCH_SHARE if exact else 1.0)
    if not exact or solve_state.reason() is not None:
        return reason
    return explore(solve_state, operations, 1, work * (1 - _FIRST_SHARE - _SEARCH_SHARE)) or reason


def _prove(
    solve_state: SolveState, operations: Operations, threads: int, work: float, others: SideSearches
) -> StoppedBy | None:
    """Raise the bound, with the exact model where it fits; return why that ended.

    The cores that the model leaves of `threads` are for other searches; once it has ended, all but one.
    """
    from jigsaw_opt.solvers.cpsat.model import is_small
    from jigsaw_opt.solvers.cpsat.search import explore, fits

    exact = fits(solve_state, operations)
    limit = math.inf if solve_state.limit is None else solve_state.limit
    workers = max(1, threads // 2) if exact else 1
    others.grow(threads - workers)
    shared = exact and limit < math.inf and not operations.needs_network
    closing = shared and is_small(operations)
    # What bounds say of the weighted ends of single jobs, they say soon, and the exact model is the smaller for it.
    in_between = closing and operations.objective != "weighted_completion"
    # Bounds at length gain larger cyclic instances next to nothing, and another search waits for them.
    brief = in_between or (operations.horizon == "cyclic" and not is_small(operations))
    most = _FIRST_BOUND_WORK if brief else BOUND_WORK if exact else work
    raise_bounds(solve_state, operations, most, _BOUND_SHARE * limit)  # Then another search takes its core.
    if exact:
        _require_plan(solve_state, operations)
    if solve_state.reason() is not None:
        return solve_state.reason()
    # Only the exact model proves that there is no plan.
    if closing and solve_state.best is not None:
        _bisect_objective(solve_state, operations, workers, work, in_between)
    elif shared and solve_state.best is not None:
        # Of larger cyclic models the engine proves nothing, and moves find more.
        if operations.horizon == "finite":
            explore(solve_state, operations, workers, work, max(0.0, _EXACT_SHARE * limit - solve_state.seconds))
        else:
            solve_state.leave_out_model("within a limit, another search takes its place at this size")
    elif exact:
        return explore(solve_state, operations, workers, work)
    others.grow(threads - 1)
    return solve_state.reason()


def _bisect_objective(
    solve_state: SolveState, operations: Operations, workers: int, work: float, in_between: bool
) -> None:
    """Ask for targets, with stronger bounds `in_between` once one is left open."""
    from jigsaw_opt.solvers.cpsat.targets import Targets

    targets = Targets(solve_state, operations, workers)
    if in_between:
        targets.bisect(work, patience=1)
        raise_bounds(solve_state, operations, _SECOND_BOUND_WORK)
    targets.bisect(work)


def _require_plan(solve_state: SolveState, operations: Operations) -> None:
    """See to it that there is a plan, if the heuristic finds one: what the exact model asks depends on it."""
    if solve_state.best is None:
        first = next(timetables(operations, solve_state.options.seed), None)
        if first is not None:
            solve_state.offer(first)

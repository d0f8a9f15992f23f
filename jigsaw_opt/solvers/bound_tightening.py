"""Bounds that are worth some seconds, for a solve under way."""

from __future__ import annotations

import math

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bounds import stronger_bounds
from jigsaw_opt.solvers.solve_state import SolveState

BOUND_WORK = 2.0
"""Seconds of a usual core for bounds before the exact model begins."""


def raise_bounds(solve_state: SolveState, operations: Operations, work: float, seconds: float = math.inf) -> None:
    """Raise the bound of a solve as far as it goes, until there is a reason to stop."""
    end, without = solve_state.seconds + seconds, solve_state.options.without_bounds

    def stop() -> bool:
        return solve_state.seconds >= end or solve_state.reason() is not None

    for bound in stronger_bounds(operations, solve_state.bound, work, stop, without):
        solve_state.raise_bound(*bound)


def raise_bounds_for(solve_state: SolveState, operations: Operations, share: float, most: float) -> None:
    """Raise the bound of a solve for a share of its limit of work and of the time left, and at most for some work."""
    limits = solve_state.options.work_limit, solve_state.remaining
    work, seconds = (math.inf if limit is None else share * limit for limit in limits)
    raise_bounds(solve_state, operations, min(most, work), seconds)

"""Bounds that are worth some seconds, for a solve under way."""

from __future__ import annotations

import math

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.bounds import stronger_bounds
from jigsaw_opt.solvers.control import Control

__all__ = ["BOUND_WORK", "raise_bounds"]

BOUND_WORK = 2.0
"""Seconds of a usual core for bounds before the exact model begins."""


def raise_bounds(control: Control, operations: Operations, work: float, seconds: float = math.inf) -> None:
    """Raise the bound of a solve as far as it goes, until there is a reason to stop.

    Parameters
    ----------
    control
        Receives the bounds.
    operations
        The instance, cut.
    work
        Limit in deterministic seconds.
    seconds
        Limit of the clock, beside those of the solve.
    """
    end, without = control.seconds + seconds, control.options.without_bounds

    def stop() -> bool:
        return control.seconds >= end or control.reason() is not None

    for bound in stronger_bounds(operations, control.bound, work, stop, without):
        control.raise_bound(*bound)

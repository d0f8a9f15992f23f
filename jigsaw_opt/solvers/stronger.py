"""Bounds that are worth some seconds, for a solve under way."""

from __future__ import annotations

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.control import Control

__all__ = ["BOUND_WORK", "raise_bounds"]

BOUND_WORK = 2.0
"""Seconds of a usual core for bounds before the exact model begins."""


def raise_bounds(control: Control, pieces: Pieces, work: float) -> None:
    """Raise the bound of a solve as far as it goes, until there is a reason to stop.

    Parameters
    ----------
    control
        Receives the bounds.
    pieces
        The instance, cut.
    work
        Limit in deterministic seconds.
    """
    from jigsaw_opt.solvers.bounds.completion import stronger_completion_bounds
    from jigsaw_opt.solvers.bounds.packing import stronger_bounds

    weighted = pieces.objective == "weighted_completion"
    bounds = stronger_completion_bounds if weighted else stronger_bounds
    for bound in bounds(pieces, control.bound, work, lambda: control.reason() is not None):
        control.raise_bound(*bound)

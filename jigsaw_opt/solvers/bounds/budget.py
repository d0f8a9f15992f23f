"""How long relaxations may search."""

from __future__ import annotations

import math
from collections.abc import Callable

from jigsaw_opt.problem import clock

__all__ = ["BoundBudget"]


class BoundBudget:
    """Budget of relaxations: deterministic work, the clock of the current solve, and a caller who may stop it.

    `work`: limit in seconds as a usual core would need, counted from the size of what is computed, so that the same
    limit gives the same bounds on every machine. `stop`: asked between steps; once it holds, the search ends and what
    was proven stays.
    """

    def __init__(self, work: float = math.inf, stop: Callable[[], bool] = lambda: False) -> None:
        self.left = work
        self._stop = stop

    @property
    def stopped(self) -> bool:
        """Return whether the caller wants no more, or the time is over."""
        return self._stop() or clock.left() <= 0

    @property
    def spent(self) -> bool:
        """Return whether the search should end."""
        return self.left <= 0 or self.stopped

    def charge(self, work: float) -> None:
        """Count work that was done."""
        self.left -= work

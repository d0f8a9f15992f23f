"""How much work and time a search may use, and why it should stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState


class Budget:
    """The work and the time that a search may use, from now on.

    `solve_state`: knows the limits, and every other reason to stop. `share`: share that the search may use of the limit
    of work, and of the time that is left. `parent`: budget of the search whose move this search is: what is spent here
    is spent there.
    """

    def __init__(self, solve_state: SolveState, share: float = 1.0, parent: Budget | None = None) -> None:
        self.solve_state, self.share, self.work, self._parent = solve_state, share, 0.0, parent
        self._began = 0.0, solve_state.seconds
        self._slice, self._since = 1.0, self._began

    def spend(self, work: float) -> bool:
        """Count deterministic seconds; return whether the budget is used up."""
        self.work += work
        if self._parent is not None:
            self._parent.spend(work)
        return self.over()

    def over(self) -> bool:
        """Return whether what is under way should stop, for any reason to end the search or at the end of its slice."""
        return self.cut() or self.reason() is not None or (self._parent is not None and self._parent.over())

    @contextmanager
    def slice(self, share: float) -> Iterator[None]:
        """Give what is done within the block no more than a share of the limits after its last success."""
        self._slice = share
        self.renew()
        try:
            yield
        finally:
            self._slice, self._since = 1.0, self._began

    def renew(self) -> None:
        """Begin the slice under way anew, after a success."""
        if self._slice < 1.0:
            self._since = self.work, self.solve_state.seconds

    @property
    def left(self) -> tuple[float, float]:
        """Return the deterministic seconds and the seconds of the clock that are left; infinite without a limit."""
        limits = self._limits
        spent = self.work, self.solve_state.seconds - self._began[1]
        work, seconds = (
            math.inf if limit is None else self.share * limit - s for limit, s in zip(limits, spent, strict=True)
        )
        return max(0.0, work), max(0.0, seconds)

    @property
    def _limits(self) -> tuple[float | None, float | None]:
        """Return the limits of the solve, counted from when the budget began."""
        return self.solve_state.options.work_limit, self.solve_state.limit and self.solve_state.limit - self._began[1]

    def cut(self) -> bool:
        """Return whether the slice under way is at its end."""
        return self._slice < 1.0 and self._used(self._slice, self._since)

    def reason(self) -> StoppedBy | None:
        """Return why the search should stop now, or None."""
        return StoppedBy.TIME if self._used(1.0, self._began) else self.solve_state.reason()

    def _used(self, part: float, since: tuple[float, float]) -> bool:
        """Return whether a part of the limits is used up since there was some work and some time on the clock."""
        solve_state = self.solve_state
        spent = self.work - since[0], solve_state.seconds - since[1]
        pairs = zip(spent, self._limits, strict=True)
        return any(limit is not None and used >= part * self.share * limit for used, limit in pairs)

"""How much work and time a search may use, and why it should stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.result import StoppedBy

__all__ = ["Budget"]


class Budget:
    """The work and the time that a search may use.

    Parameters
    ----------
    control
        Knows the limits, and every other reason to stop.
    share
        Of the limits of time and work, how much the search may use.

    Attributes
    ----------
    work
        Deterministic seconds spent so far.
    """

    def __init__(self, control: Control, share: float = 1.0) -> None:
        self.control, self.share, self.work = control, share, 0.0
        self._slice, self._since = 1.0, (0.0, 0.0)

    def spend(self, work: float) -> bool:
        """Count deterministic seconds; says whether the budget is used up."""
        self.work += work
        return self.over()

    def over(self) -> bool:
        """Whether what is under way should stop: for any reason to end the search, or at the end of its slice."""
        return self.cut() or self.reason() is not None

    @contextmanager
    def slice(self, share: float) -> Iterator[None]:
        """Give what is done within the block no more than a share of the limits after its last success."""
        self._slice = share
        self.renew()
        try:
            yield
        finally:
            self._slice, self._since = 1.0, (0.0, 0.0)

    def renew(self) -> None:
        """Begin the slice under way anew, after a success."""
        if self._slice < 1.0:
            self._since = self.work, self.control.seconds

    def cut(self) -> bool:
        """Whether the slice under way is at its end."""
        return self._slice < 1.0 and self._used(self._slice, self._since)

    def reason(self) -> StoppedBy | None:
        """Why the search should stop now, or None."""
        return StoppedBy.TIME if self._used(1.0, (0.0, 0.0)) else self.control.reason()

    def _used(self, part: float, since: tuple[float, float]) -> bool:
        """Whether a part of the limits is used up since there was some work and some time on the clock."""
        spent = self.work - since[0], self.control.seconds - since[1]
        limits = self.control.options.work_limit, self.control.limit
        pairs = zip(spent, limits, strict=True)
        return any(limit is not None and used >= part * self.share * limit for used, limit in pairs)

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
        self._slice = 1.0
        self._slice_ends: tuple[float | None, float | None] = (None, None)

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
            self._slice_ends = None, None

    def renew(self) -> None:
        """Begin the slice under way anew, after a success."""
        used = (self.work, self.control.seconds)
        limits = (self.control.options.work_limit, self.control.limit)
        work, seconds = (
            None if limit is None else spent + self._slice * self.share * limit
            for spent, limit in zip(used, limits, strict=True)
        )
        self._slice_ends = work, seconds

    def cut(self) -> bool:
        """Whether the slice under way is at its end."""
        work, seconds = self._slice_ends
        return (work is not None and self.work >= work) or (seconds is not None and self.control.seconds >= seconds)

    def reason(self) -> StoppedBy | None:
        """Why the search should stop now, or None."""
        options = self.control.options
        used = ((self.work, options.work_limit), (self.control.seconds, self.control.limit))
        if any(limit is not None and spent >= self.share * limit for spent, limit in used):
            return StoppedBy.TIME
        return self.control.reason()

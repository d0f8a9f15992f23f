"""How much work and time a search may use, and why it should stop."""

from __future__ import annotations

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

    def spend(self, work: float) -> bool:
        """Count deterministic seconds; says whether the budget is used up."""
        self.work += work
        return self.over()

    def over(self) -> bool:
        """Whether there is any reason to stop."""
        return self.reason() is not None

    def reason(self) -> StoppedBy | None:
        """Why the search should stop now, or None."""
        options = self.control.options
        used = ((self.work, options.work_limit), (self.control.seconds, self.control.limit))
        if any(limit is not None and spent >= self.share * limit for spent, limit in used):
            return StoppedBy.TIME
        return self.control.reason()

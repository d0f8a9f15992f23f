"""The limits of all searches of a planner together, and what is left of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import require_options

_SOLVE_UNITS, _SOLVE_SECONDS = 0.05, 0.2
"""Deterministic units and seconds of a solve at least: it builds and checks an instance."""
_CHECKING = 0.15
"""Share of the time that is left for checking the plan and writing it."""
_STEPS = 50_000
"""Operations for which packing looks for a time, in a unit of work."""
_DECIDED = 0.2
"""What a vector that is decided counts of its work, which a solve does not tell."""
_WORK = 40.0
"""Limit of work where there is none: deterministic seconds of all solves together."""


class Limits:
    """The limits of a call, and what is left of them: time on the clock, and the share of the work that is spent.

    `options`: options with the limits of everything together. `takes`: names of options that it keeps to.
    """

    takes: ClassVar[tuple[str, ...]] = ("time_limit", "work_limit", "seed", "threads", "params")

    def __init__(self, options: Options) -> None:
        self._options, self._spent = options, 0.0
        self._end = math.inf if options.time_limit is None else time.monotonic() + options.time_limit

    @classmethod
    def of(cls, options: Options, told: str) -> Limits:
        """Return limits of `options`, of work where there are none; refuse other options.

        `told`: what errors call the search.
        """
        require_options(cls, options, told)
        work = _WORK if options.time_limit is None and options.work_limit is None else options.work_limit
        return cls(replace(options, work_limit=work))

    @property
    def seed(self) -> int:
        """Seed of all that is random."""
        return self._options.seed

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self._spent >= 1 or self.late(0.0)

    def late(self, seconds: float) -> bool:
        """Return whether the clock has been over for so long, or the search is cancelled."""
        return self._options.cancel.is_set() or time.monotonic() >= self._end + seconds

    def left(self) -> float:
        """Return the share of the limits that is left, of the one that ends first; 1 where there is none."""
        if self.over:
            return 0.0
        limit = self._options.time_limit
        return min(1 - self._spent, 1.0 if limit is None else (self._end - time.monotonic()) / max(limit, 1e-9))

    def part(self, share: float) -> Options:
        """Return options with a share of the whole, or what is left of it."""
        seconds, units = self._options.time_limit, self._options.work_limit
        return self._at_most(share * (seconds or 0.0), share * (units or 0.0))

    def part_of_left(self, share: float, least_seconds: float = 0.0, least_units: float = 0.0) -> Options:
        """Return options with a share of what is left, or with the least that is stated where that is more."""
        left = self._at_most(math.inf, math.inf)
        seconds, units = left.time_limit or 0.0, left.work_limit or 0.0
        return self._at_most(max(least_seconds, share * seconds), max(least_units, share * units))

    def _at_most(self, seconds: float, units: float) -> Options:
        """Return options with so much of each limit that there is, as far as it is left."""
        time_limit, work_limit = self._options.time_limit, self._options.work_limit
        if time_limit is not None:
            time_limit = max(0.0, min(seconds, self._end - time.monotonic()))
        if work_limit is not None:
            work_limit = max(0.0, min(units, (1 - self._spent) * work_limit))
        return replace(self._options, time_limit=time_limit, work_limit=work_limit)

    def take(self, share: float) -> Options:
        """Take a share of what is left for one solve, but no less than it takes to begin one."""
        taken = self.part_of_left(share, _SOLVE_SECONDS, _SOLVE_UNITS)
        if taken.work_limit is not None:
            # What a solve really takes is not known, so that all it may take is spent at once.
            self.spend(max(taken.work_limit, _SOLVE_UNITS))
        return taken

    def before_checking(self, share: float) -> Options:
        """Return options as `part` does that leave time to check the plan and write it."""
        own, limit = self.part(share), self._options.time_limit
        if own.time_limit is None or limit is None:
            return own
        left = self._end - time.monotonic() - _CHECKING * limit
        return replace(own, time_limit=max(0.0, min(own.time_limit, left)))

    def stop(self, share: float) -> Callable[[int], bool]:
        """Return a function that says whether so many steps of packing use up a share of the limits."""
        own = self._options
        end = math.inf if own.time_limit is None else time.monotonic() + share * own.time_limit
        end = min(end, self._end - _CHECKING * (own.time_limit or 0.0))
        left = min(share, 1 - self._spent)
        return lambda steps: own.cancel.is_set() or self.steps_share(steps) >= left or time.monotonic() >= end

    def work_share(self, units: float) -> float:
        """Return what so much work is of the limit; 0 without one."""
        return 0.0 if self._options.work_limit is None else units / max(self._options.work_limit, 1e-9)

    def steps_share(self, steps: int) -> float:
        """Return what steps of packing are of the limit of work; 0 without one."""
        return self.work_share(steps / _STEPS)

    def charge(self, share: float, decided: bool = False) -> None:
        """Count a share of the work as spent; time is on the clock."""
        if self._options.work_limit is not None:
            self._spent += share * (_DECIDED if decided else 1.0)

    def spend(self, units: float) -> None:
        """Count units of work as spent."""
        self.charge(self.work_share(units))

    def is_spent_by(self, units: float) -> bool:
        """Count units of work as spent; return whether nothing is left."""
        self.spend(units)
        return self.over

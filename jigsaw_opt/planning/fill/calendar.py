"""The busy times of a GPU or a link in a period, and the next free time that is long enough."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

__all__ = ["Calendar", "earliest"]


class Calendar:
    """Busy times of one resource modulo a period.

    Parameters
    ----------
    period_us
        The period.
    busy
        Starts and ends, none longer than the period, in any order; they may lie in any period.
    """

    __slots__ = ("_ends", "_starts", "period_us")

    def __init__(self, period_us: int, busy: Iterable[tuple[int, int]] = ()) -> None:
        self.period_us = period_us
        self._starts: list[int] = []
        self._ends: list[int] = []
        parts = sorted(part for start, end in busy for part in self._parts(start, end))
        for start, end in parts:
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def add(self, start: int, end: int) -> None:
        """Take a free time."""
        for low, high in self._parts(start, end):
            at = bisect_left(self._starts, low)
            before = at > 0 and self._ends[at - 1] == low
            after = at < len(self._starts) and self._starts[at] == high
            if before and after:
                self._ends[at - 1] = self._ends.pop(at)
                del self._starts[at]
            elif before:
                self._ends[at - 1] = high
            elif after:
                self._starts[at] = low
            else:
                self._starts.insert(at, low)
                self._ends.insert(at, high)

    def fit(self, moment: int, length: int) -> int | None:
        """The first moment, no earlier than one, from which so long a time is free; None where there is none."""
        starts, ends, period = self._starts, self._ends, self.period_us
        if length > period:
            return None
        if not starts:
            return moment
        base = moment - moment % period
        phase, count = moment - base, len(starts)
        at = bisect_right(starts, phase) - 1
        if at >= 0 and ends[at] > phase:
            phase = ends[at]
        for _ in range(count + 1):
            at += 1
            if at == count:
                at, base, phase = 0, base + period, phase - period
            if phase + length <= starts[at]:
                return base + phase
            phase = ends[at]
        return None

    def hole(self, moment: int) -> tuple[int, int]:
        """Start and end of the free time around a moment, or of the next one; a whole period where nothing is busy."""
        starts, ends, period = self._starts, self._ends, self.period_us
        if not starts:
            return moment, moment + period
        start = self.fit(moment, 1)
        if start is None:
            return moment, moment
        base = start - start % period
        at = bisect_right(starts, start - base)
        low = base + (ends[at - 1] if at else ends[-1] - period)
        high = base + (starts[at] if at < len(starts) else starts[0] + period)
        return low, high

    @property
    def free_us(self) -> int:
        """Time that is free in a period."""
        return self.period_us - sum(self._ends) + sum(self._starts)

    def _parts(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        """A time modulo the period, cut where it passes its end."""
        if start >= end:
            return ()
        phase = start % self.period_us
        last = phase + end - start
        if last <= self.period_us:
            return ((phase, last),)
        return (0, last - self.period_us), (phase, self.period_us)


def earliest(calendars: Sequence[Calendar], moment: int, length: int) -> int | None:
    """The first moment, no earlier than one, from which so long a time is free on several resources at once."""
    if length == 0 or not calendars:
        return moment
    if len(calendars) == 1:
        return calendars[0].fit(moment, length)
    limit, agreed = moment + calendars[0].period_us, 0
    while moment <= limit:
        for calendar in calendars:
            found = calendar.fit(moment, length)
            if found is None:
                return None
            agreed = agreed + 1 if found == moment else 1
            moment = found
            if agreed >= len(calendars):
                return moment
    return None

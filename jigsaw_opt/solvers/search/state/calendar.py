"""Busy times of one GPU or link, on the finite horizon or modulo a period."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

__all__ = ["ResourceCalendar", "union"]


class ResourceCalendar:
    """Disjoint busy intervals in order.

    Parameters
    ----------
    period
        The period in microseconds, or None on the finite horizon. With a period, an interval that reaches past the
        period is kept in two parts.
    """

    __slots__ = ("busy_us", "ends", "period", "starts")

    def __init__(self, period: int | None = None) -> None:
        self.period = period
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.busy_us = 0

    def earliest(self, moment: int, duration: int) -> int | None:
        """Earliest start, not before `moment`, of a free time of `duration`; None where a period has none."""
        if not duration:
            return moment
        period = self.period
        if period is not None:
            return self._earliest_around(moment, duration, period)
        starts, ends = self.starts, self.ends
        for k in range(bisect_right(ends, moment), len(ends)):
            if starts[k] - moment >= duration:
                return moment
            moment = ends[k] if ends[k] > moment else moment
        return moment

    def _earliest_around(self, moment: int, duration: int, period: int) -> int | None:
        starts, ends = self.starts, self.ends
        if not ends:
            return moment if duration <= period else None
        turn, phase = divmod(moment, period)
        shift, k = turn * period, bisect_right(ends, phase)
        for _ in range(len(ends) + 1):
            if k == len(ends):
                k, shift = 0, shift + period
            if starts[k] + shift - moment >= duration:
                return moment
            if ends[k] + shift > moment:
                moment = ends[k] + shift
            k += 1
        return None

    def add(self, start: int, end: int) -> None:
        """Make a free interval busy."""
        if start == end:
            return
        self.busy_us += end - start
        for first, last in self._parts(start, end):
            k = bisect_right(self.starts, first)
            self.starts.insert(k, first)
            self.ends.insert(k, last)

    def remove(self, start: int, end: int) -> None:
        """Free an interval that was added."""
        if start == end:
            return
        self.busy_us -= end - start
        for first, _ in self._parts(start, end):
            k = bisect_right(self.starts, first) - 1
            del self.starts[k], self.ends[k]

    def _parts(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        if self.period is None:
            return ((start, end),)
        phase = start % self.period
        last = phase + end - start
        if last <= self.period:
            return ((phase, last),)
        return (phase, self.period), (0, last - self.period)


def union(calendars: Sequence[ResourceCalendar], period: int | None) -> ResourceCalendar:
    """Timeline that is free where all are free; it does not follow their changes."""
    if len(calendars) == 1:
        return calendars[0]
    both = ResourceCalendar(period)
    for start, end in sorted(part for each in calendars for part in zip(each.starts, each.ends, strict=True)):
        if both.ends and start <= both.ends[-1]:
            both.ends[-1] = max(end, both.ends[-1])
        else:
            both.starts.append(start)
            both.ends.append(end)
    both.busy_us = sum(both.ends) - sum(both.starts)
    return both

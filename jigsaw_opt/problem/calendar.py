"""Busy times of one GPU or link, on the finite horizon or modulo a period."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence


class Calendar:
    """Disjoint busy intervals in order.

    `period`: the period in microseconds, or None on the finite horizon. With a period, an interval that reaches past
    the period is kept in two parts. `busy`: starts and ends, none longer than the period, in any order; what overlaps
    or meets becomes one interval.
    """

    __slots__ = ("busy_us", "ends", "period", "starts")

    def __init__(self, period: int | None = None, busy: Iterable[tuple[int, int]] = ()) -> None:
        self.period = period
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.busy_us = 0
        self._fill(part for interval in busy for part in self._parts(*interval))

    def earliest(self, moment: int, duration: int) -> int | None:
        """Return the earliest start, not before `moment`, of a free time of `duration`; None if a period has none."""
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
        # Go once around the period from `moment`; after all intervals there is no free time that is long enough.
        turn, offset = divmod(moment, period)
        shift, k = turn * period, bisect_right(ends, offset)
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
        """Make a free interval busy.

        `start, end`: its ends, in microseconds; nothing in between may be busy.
        """
        self.busy_us += end - start
        for first, last in self._parts(start, end):
            k = bisect_right(self.starts, first)
            self.starts.insert(k, first)
            self.ends.insert(k, last)

    def remove(self, start: int, end: int) -> None:
        """Free an interval that was added.

        `start, end`: its ends, in microseconds, as they were added.
        """
        self.busy_us -= end - start
        for first, _ in self._parts(start, end):
            k = bisect_right(self.starts, first) - 1
            del self.starts[k], self.ends[k]

    def hole(self, moment: int) -> tuple[int, int]:
        """Return start and end of the free time around a moment, or of the next one, in a period.

        A whole period is free where nothing is busy, and none of it where all is.
        """
        start, period = self.earliest(moment, 1), self.period
        assert period is not None, "a finite horizon has no end"
        if start is None or not self.starts:
            return moment, moment + period - self.busy_us
        base = start - start % period
        at = bisect_right(self.starts, start - base)
        # Before the first interval of a period comes the last one of the period before.
        before = self.ends[at - 1] if at else self.ends[-1] - period
        return base + before, base + (self.starts[at] if at < len(self.starts) else self.starts[0] + period)

    def _fill(self, parts: Iterable[tuple[int, int]]) -> None:
        for start, end in sorted(parts):
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(end, self.ends[-1])
            else:
                self.starts.append(start)
                self.ends.append(end)
        self.busy_us = sum(self.ends) - sum(self.starts)

    def _parts(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        if start >= end:
            return ()
        if self.period is None:
            return ((start, end),)
        offset = start % self.period
        last = offset + end - start
        if last <= self.period:
            return ((offset, last),)
        # What reaches past the period comes round to its beginning.
        return (offset, self.period), (0, last - self.period)


def union(calendars: Sequence[Calendar], period: int | None) -> Calendar:
    """Return a calendar that is free where all are free; it does not follow their changes.

    `calendars`: at least one; a single one is returned itself. `period`: their period in microseconds, or None on the
    finite horizon.
    """
    if len(calendars) == 1:
        return calendars[0]
    both = Calendar(period)
    both._fill(part for each in calendars for part in zip(each.starts, each.ends, strict=True))
    return both

"""Who is on a GPU or link before a moment, and when memory or power is used up; on both horizons."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["BusyTimes", "Occupation", "UseOverTime"]


class Occupation(NamedTuple):
    """An activity on a GPU or link.

    `shift_us`: how much later than in the first period; 0 on the finite horizon.
    """

    start_us: int
    end_us: int
    activity: int
    shift_us: int


class BusyTimes:
    """The activities on one GPU or link, which never overlap.

    `activities`: as (number, start, duration), in microseconds; durations are above 0. `period`: in microseconds; None
    on the finite horizon.
    """

    def __init__(self, activities: Iterable[tuple[int, int, int]], period: int | None) -> None:
        self._period = period
        first = sorted(
            (start if period is None else start % period, start, number, length) for number, start, length in activities
        )
        self._starts = [begin for begin, *_ in first]
        self._of_first = [Occupation(b, b + length, number, b - start) for b, start, number, length in first]

    def before(self, moment: int) -> Iterator[Occupation]:
        """Yield what starts before a moment, the latest first; on the cyclic horizon without end."""
        period = self._period
        if period is None:
            for at in range(bisect_left(self._starts, moment) - 1, -1, -1):
                yield self._of_first[at]
            return
        turn, rest = divmod(moment, period)
        at, count = bisect_left(self._starts, rest) - 1, len(self._starts)
        while True:
            shift = (turn + at // count) * period
            start, end, activity, own = self._of_first[at % count]
            yield Occupation(start + shift, end + shift, activity, own + shift)
            at -= 1


class UseOverTime:
    """Bytes held on one GPU, or watts drawn under one power cap, over time.

    `holds`: as (start, end, bytes or watts). `room`: how much may be taken in all. `period`: in microseconds; None on
    the finite horizon. `activations`: as (start, end, bytes); of those that overlap, only the largest counts. None on
    the cyclic horizon.
    """

    def __init__(
        self,
        holds: Sequence[tuple[int, int, int]],
        room: int,
        period: int | None,
        activations: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._room, self._period = room, period
        changes, always = defaultdict[int, int](int), 0
        changes[0] = 0
        for start, end, size in holds:
            begin, length = start, end - start
            if period is not None:
                begin, (whole, length) = start % period, divmod(length, period)
                always += whole * size
                if begin + length > period:  # what reaches over the end is there at the beginning
                    always, length = always + size, length - period
            changes[begin] += size
            changes[begin + length] -= size
        for start, end, _ in activations:
            changes[start] += 0
            changes[end] += 0
        self._times = sorted(time for time in changes if period is None or time < period)
        self._levels = []
        for time in self._times:
            always += changes[time]
            self._levels.append(always)
        self._most = [
            max((size for start, end, size in activations if start <= time < end), default=0) for time in self._times
        ]

    def full(self, more: int, since: int, until: int, activations: int = 0) -> Iterator[tuple[int, int]]:
        """Yield intervals between two moments in which there is no room for some more, the latest first."""
        turn, rest = (0, until) if self._period is None else divmod(until, self._period)
        at, count, upper = bisect_left(self._times, rest) - 1, len(self._times), until
        while upper > since and (self._period is not None or at >= 0):
            lower = self._times[at % count] + (turn + at // count) * (self._period or 0)
            if self._levels[at % count] + max(self._most[at % count], activations) + more > self._room:
                yield max(lower, since), upper
            at, upper = at - 1, lower

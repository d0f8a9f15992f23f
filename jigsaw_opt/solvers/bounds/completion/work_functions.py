"""How much work of a job fits into the first moments after its release, or into the last before its completion."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.resource_demands import ResourceDemand, WorkInterval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MOST_INTERVALS = 1_000
"""Largest number of intervals in all iterations of a job; jobs with more are left out."""


class WorkFunction:
    """A rising piecewise linear function from 0 at 0, with integer corners and integer slopes.

    `rises`: slope, first moment and length of each stretch over which it rises; where several overlap, they add up.
    """

    def __init__(self, rises: Sequence[tuple[int, int, int]]) -> None:
        changes: dict[int, int] = {0: 0}
        for slope, start, length in rises:
            changes[start] = changes.get(start, 0) + slope
            changes[start + length] = changes.get(start + length, 0) - slope
        self.times, self.values = [0], [0]
        slope = changes.pop(0)
        for time in sorted(changes):
            self.values.append(self.values[-1] + slope * (time - self.times[-1]))
            self.times.append(time)
            slope += changes[time]

    @property
    def longest(self) -> int:
        """Return the moment of the last corner."""
        return self.times[-1]

    def at(self, time: int) -> int:
        """Return the exact value at an integer."""
        k = bisect_right(self.times, time)
        if k == 0 or k == len(self.times):
            return self.values[-1] if k else 0
        (start, end), (low, high) = self.times[k - 1 : k + 1], self.values[k - 1 : k + 1]
        # Slopes are integers, so that the division has no remainder.
        return low + (high - low) * (time - start) // (end - start)

    def near(self, times: Floats) -> Floats:
        """Return values in floating point."""
        import numpy as np

        # Integers beyond 64 bits would make arrays of objects.
        at, corners, values = (np.asarray(numbers, dtype=np.float64) for numbers in (times, self.times, self.values))
        found: Floats = np.interp(at, corners, values)
        return found


class Profile(NamedTuple):
    """Most work of a job in a stretch of time that begins at its release, or that ends at its completion.

    `base, room`: work that every iteration has, and the most free work beyond it.
    """

    base: WorkFunction
    room: WorkFunction
    free_work: int

    def at(self, length: int) -> int:
        """Return the exact value for a stretch of so many microseconds."""
        return self.base.at(length) + min(self.free_work, self.room.at(length))

    def near(self, lengths: Floats) -> Floats:
        """Return values in floating point."""
        import numpy as np

        found: Floats = self.base.near(lengths) + np.minimum(self.free_work, self.room.near(lengths))
        return found

    def corners(self, work: int) -> set[int]:
        """Return the lengths between which ``max(0, work - self.at(length))`` is linear on the integers."""
        crossings = (_first(self.room, self.free_work), _first(self, work))
        # A crossing may lie between two integers. With both of them as corners, the function is linear on the integers
        # in between.
        return {*self.base.times, *self.room.times, *(at - k for at in crossings for k in (0, 1))}

    @property
    def longest(self) -> int:
        """Return the length beyond which no more work fits."""
        return max(self.base.longest, self.room.longest)


def _first(function: WorkFunction | Profile, work: int) -> int:
    """Return the least length that holds so much work, or one behind the last corner where none does."""
    low, high = 0, function.longest + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if function.at(middle) >= work else (middle + 1, high)
    return low


def profiles(data: JobData, demand: ResourceDemand | None) -> tuple[Profile, Profile] | None:
    """Return the profiles of a job from its release and from its end.

    None for a job that asks nothing, or that has too many intervals.

    `demand`: what it asks of the resource, None for nothing.
    """
    if demand is None or not demand.work or data.job.iterations * (len(demand.intervals) + 1) > _MOST_INTERVALS:
        return None
    free_work = demand.free_work(data.job.iterations)
    room = () if demand.free_interval is None else (demand.free_interval,)
    early, late = (
        Profile(_function(data, demand.intervals, first), _function(data, room, first), free_work)
        for first in (True, False)
    )
    return early, late


def _function(data: JobData, intervals: Sequence[WorkInterval], from_release: bool) -> WorkFunction:
    """Return the work function of repeated intervals, seen from the release or from the end.

    Every iteration has at least the least length, so the i-th one is at least i times that length further away.
    """
    starts = [(each.rate, each.before if from_release else each.after, each.length) for each in intervals]
    iterations = range(data.job.iterations)
    return WorkFunction(
        [(rate, i * data.job_class.iteration + at, length) for i in iterations for rate, at, length in starts]
    )

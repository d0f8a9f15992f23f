"""How much work of a job fits into the first moments after its release, or into the last before its end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.solvers.bounds.demand import Demand, Run
from jigsaw_opt.solvers.bounds.facts import Facts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Curve", "Profile", "profiles"]

_MOST_RUNS = 1_000
"""Jobs with more runs in all their iterations are left out."""


class Curve:
    """A rising piecewise linear function from 0 at 0, with integer corners and integer slopes.

    Parameters
    ----------
    rises
        Slope, first moment and length of each stretch over which it rises; where several overlap, they add up.
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
        """Moment of the last corner."""
        return self.times[-1]

    def at(self, time: int) -> int:
        """Exact value at an integer."""
        k = bisect_right(self.times, time)
        if k == 0 or k == len(self.times):
            return self.values[-1] if k else 0
        (start, end), (low, high) = self.times[k - 1 : k + 1], self.values[k - 1 : k + 1]
        return low + (high - low) * (time - start) // (end - start)

    def near(self, times: Floats) -> Floats:
        """Values in floating point."""
        import numpy as np

        # Integers beyond 64 bits would make arrays of objects.
        at, corners, values = (np.asarray(numbers, dtype=np.float64) for numbers in (times, self.times, self.values))
        found: Floats = np.interp(at, corners, values)
        return found


class Profile(NamedTuple):
    """Most work of a job in a stretch of time that begins at its release, or that ends at its end.

    Parameters
    ----------
    base, spare
        Work that every iteration has, and most that lies beyond it.
    surplus
        What lies beyond it in all.
    """

    base: Curve
    spare: Curve
    surplus: int

    def at(self, length: int) -> int:
        """Exact value for a stretch of so many microseconds."""
        return self.base.at(length) + min(self.surplus, self.spare.at(length))

    def near(self, lengths: Floats) -> Floats:
        """Values in floating point."""
        import numpy as np

        found: Floats = self.base.near(lengths) + np.minimum(self.surplus, self.spare.near(lengths))
        return found

    def corners(self, work: int) -> set[int]:
        """Lengths between which ``max(0, work - self.at(length))`` is linear on the integers."""
        crossings = (_first(self.spare, self.surplus), _first(self, work))
        return {*self.base.times, *self.spare.times, *(at - k for at in crossings for k in (0, 1))}

    @property
    def longest(self) -> int:
        """Length beyond which no more work fits."""
        return max(self.base.longest, self.spare.longest)


def _first(curve: Curve | Profile, work: int) -> int:
    """Least length that holds so much work, or one behind the last corner where none does."""
    low, high = 0, curve.longest + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if curve.at(middle) >= work else (middle + 1, high)
    return low


def profiles(fact: Facts, demand: Demand | None) -> tuple[Profile, Profile] | None:
    """Profiles from the release and from the end; None for a job that asks nothing, or has too many runs."""
    if demand is None or not demand.work or fact.job.iterations * (len(demand.runs) + 1) > _MOST_RUNS:
        return None
    surplus = demand.surplus(fact.job.iterations)
    spare = () if demand.spare is None else (demand.spare,)
    early = Profile(_curve(fact, demand.runs, True), _curve(fact, spare, True), surplus)
    return early, Profile(_curve(fact, demand.runs, False), _curve(fact, spare, False), surplus)


def _curve(fact: Facts, runs: Sequence[Run], from_release: bool) -> Curve:
    """Iterations are at least so long, so the one before or after is at least so much further away."""
    return Curve(
        [
            (run.rate, i * fact.shape.iteration + (run.before if from_release else run.after), run.length)
            for i in range(fact.job.iterations)
            for run in runs
        ]
    )

"""The throughput of a group of jobs, whichever way its jobs take turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.interleave.rotation import SLOWDOWN, Group, Timing, rotation_periods
from jigsaw_opt.formulations.interleave.timetable import saved_alone_us, timetable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Round(NamedTuple):
    """One round of a group on the same GPUs.

    `iterations`: number of iterations of each job in it. `staircase`: whether jobs that may stop their backward passes
    early do so.
    """

    time_us: float
    iterations: tuple[int, ...]
    staircase: bool


@lru_cache(maxsize=1 << 16)
def group_round(group: Group, timing: Timing) -> Round:
    """Return the round of one group."""
    if len(group) == 1:
        saved = saved_alone_us(group[0]) if timing == "planned" else 0
        return Round(float(group[0].alone_us - saved), (1,), saved > 0)
    slowdown = float(SLOWDOWN[len(group) - 1])
    if timing == "planned":
        found = timetable(group)
        return Round(found.period_us * slowdown, found.iterations, found.staircase)
    return Round(float(rotation_periods([group], timing)[0]) * slowdown, (1,) * len(group), False)


def throughputs(groups: Sequence[Group], timing: Timing) -> NDArray[np.float64]:
    """Return the normalised throughput of groups of one size: the sum of the jobs' speeds relative to those alone.

    One number for each group; 1 for a job alone.

    `groups`: at least one group, all of as many jobs.
    """
    import numpy as np

    size = len(groups[0])
    # Rotations of all groups are found at once in arrays, timetables one by one.
    if timing == "planned":
        return np.array([_throughput(group, group_round(group, timing)) for group in groups])
    if size == 1:
        return np.ones(len(groups))
    alone = np.array([[job.alone_us for job in group] for group in groups])
    return np.asarray(alone.sum(axis=1) / (rotation_periods(groups, timing) * float(SLOWDOWN[size - 1])))


def normalised_throughput(groups: Mapping[Group, int], timing: Timing) -> float:
    """Return the sum of the speeds of all jobs in their groups, each relative to its speed alone."""
    return sum(number * _throughput(group, group_round(group, timing)) for group, number in groups.items())


def _throughput(group: Group, done: Round) -> float:
    return sum(number * job.alone_us for number, job in zip(done.iterations, group, strict=True)) / done.time_us

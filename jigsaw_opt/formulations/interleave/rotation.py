"""Period of jobs that take turns at the stages of an iteration, for many groups at once.

Up to four jobs stand at the four positions of a rotation. In slot ``i`` the job at position ``i + 1`` exchanges
gradients, the one at ``i + 2`` computes, and the one at ``i + 3`` ends its loading, for which it has two slots. Slot
``i`` ends when what belongs to it has ended; positions and slots count modulo 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times: TypeAlias = NDArray[np.int64]

MOST_JOBS = 4
"""Jobs of a group at most."""

SLOWDOWN = (Fraction(1), Fraction(266, 203), Fraction(300, 203), Fraction(274, 203))
"""What sharing costs besides waiting, by the number of jobs less one: 1.33, 1.5 and 1.37 over the 1.015 of a job alone,
as measured by Muri's authors on their own testbed."""

Timing = Literal["published", "steady", "planned"]
"""How jobs take turns: in a rotation, with its period as Muri's simulator finds it or as it is once it repeats; or by a
timetable of the group."""


class StagedJob(NamedTuple):
    """The stages of one iteration of a job, on GPUs of its own. Equal jobs are of one class.

    `gpus`: number of its workers, each on a GPU. `load_us, compute_us, network_us`: microseconds for loading data, on
    each GPU, and for exchanging gradients. `alone_us`: microseconds between the starts of two iterations while the job
    shares nothing. It may be less than the sum of the stages, where data is loaded ahead. `staircase`: whether its
    workers may stop their backward passes early, as in the depth rule `staircase`.
    """

    gpus: int
    load_us: int
    compute_us: int
    network_us: int
    alone_us: int
    staircase: bool = False


Group: TypeAlias = tuple[StagedJob, ...]
"""Jobs that share the same GPUs; all of them ask for the same number."""


Rotation = Literal["published", "steady"]
"""The way in which the period of a rotation is found: as Muri's simulator does, or as it is once it repeats."""

_TOLERANCE = 1000
"""Muri takes a rotation for settled when two of its slots in successive rounds differ by one part in so many."""


def rotation_periods(groups: Sequence[Group], rotation: Rotation) -> Times:
    """Return the microseconds of one round of each group, one iteration a job, in the best order.

    `rotation`: ``published``: two rounds from an empty pipeline, with the tolerance and the slots without a stage as in
    Muri's simulator, which may fall short of what repeats. ``steady``: the largest cycle mean.
    """
    import numpy as np

    size = len(groups[0])
    times = np.array(
        [[(job.load_us, job.compute_us, job.network_us) for job in group] for group in groups], dtype=np.int64
    )
    orders = list(permutations(range(size)))
    if rotation == "steady" and size == MOST_JOBS:
        # A settled rotation without an empty position looks the same from each.
        orders = [order for order in orders if order[0] == 0]
    ordered = times[:, np.array(orders)]
    periods = _published(ordered) if rotation == "published" else _steady(_filled(ordered))
    least = np.asarray(periods.min(axis=1))
    return np.minimum(least, _two_slots(times)) if size == 2 else least


def _published(jobs: Times) -> Times:
    """Return the period as in Muri's `calc_iteration_time`; `jobs` by group, order, position and stage."""
    import numpy as np

    ends = [np.zeros(jobs.shape[:2], dtype=np.int64)]
    period = np.zeros_like(ends[0])
    for i in range(2 * MOST_JOBS):
        ends.append(_slot_end(jobs, ends, i))
        if i >= MOST_JOBS:
            # Entry ``i + 1`` is the end of slot ``i``; a round has four slots, so a period is a difference over four.
            now, before = ends[i + 1] - ends[i - 3], ends[i] - ends[i - 4]
            settled = _TOLERANCE * abs(now - before) <= np.maximum(abs(now), abs(before))
            period = np.where((period == 0) & settled, now, period)
    return np.where(period > 0, period, ends[8] - ends[4])


def _slot_end(jobs: Times, ends: list[Times], i: int) -> Times:
    """Return the end of slot `i`; 0 where no job has a stage in it, which is how Muri counts it."""
    import numpy as np

    size, end = jobs.shape[2], np.zeros_like(ends[0])
    for position, stage, start in (((i + 1) % 4, 2, i), ((i + 2) % 4, 1, i), ((i + 3) % 4, 0, i - 1)):
        if position < size and start >= 0:
            end = np.maximum(end, ends[start] + jobs[:, :, position, stage])
    return end


def _filled(jobs: Times) -> Times:
    """Add jobs without stages at the positions that have none."""
    import numpy as np

    return np.pad(jobs, ((0, 0), (0, 0), (0, MOST_JOBS - jobs.shape[2]), (0, 0)))


def _steady(jobs: Times) -> Times:
    """Return the largest cycle mean: a cycle passes each slot once, alone or with a neighbour while a job loads."""
    import numpy as np

    slot = [np.maximum(jobs[:, :, (i + 1) % 4, 2], jobs[:, :, (i + 2) % 4, 1]) for i in range(4)]
    # `load[i]` covers the slots ``i - 1`` and ``i``. A cycle covers all four slots: with none, one or two loads.
    load = [jobs[:, :, (i + 3) % 4, 0] for i in range(4)]
    cycles = [slot[0] + slot[1] + slot[2] + slot[3], load[0] + load[2], load[1] + load[3]]
    cycles += [load[i] + slot[(i + 1) % 4] + slot[(i + 2) % 4] for i in range(4)]
    return np.asarray(np.maximum.reduce(cycles))


def _two_slots(pairs: Times) -> Times:
    """Return the period of two jobs, which may also swap: one loads while the other computes and exchanges."""
    import numpy as np

    load, rest = pairs[:, :, 0], pairs[:, :, 1] + pairs[:, :, 2]
    return np.asarray(np.maximum(load[:, 0], rest[:, 1]) + np.maximum(load[:, 1], rest[:, 0]))

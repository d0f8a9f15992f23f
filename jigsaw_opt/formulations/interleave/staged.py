"""Jobs as stages: what a group is made of."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["MOST_JOBS", "SLOWDOWN", "Group", "StagedJob", "Timing"]

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

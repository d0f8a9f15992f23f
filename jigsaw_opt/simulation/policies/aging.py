"""A bound on waiting under policies that let others go first: who has waited for too long comes before all others."""

from __future__ import annotations

from collections.abc import Iterable

from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.option_values import OpenValues, whole_numbers
from jigsaw_opt.scheduling.policy import Active, Moment

__all__ = ["AGING", "HYSTERESIS", "Aging"]

_HOUR_US = 3_600_000_000
_MOST_HOURS = 10**6
AGING: OpenValues = whole_numbers("none", "24", "72", most=_MOST_HOURS)
"""Hours of waiting after which a job comes first; ``none`` for never."""
HYSTERESIS: OpenValues = whole_numbers("1", "0", "2", "4", most=1000)
"""How many restart times less a job must have left than one that runs, to take its GPUs."""


class Aging:
    """Puts jobs first that have waited for long, in order of submission.

    Time on GPUs is no waiting. What a job has waited it never loses, so that one that came first keeps its GPUs.

    Parameters
    ----------
    hours
        A value of `AGING`.
    """

    def __init__(self, hours: str) -> None:
        self._limit_us = None if hours == "none" else int(hours) * _HOUR_US

    def order(self, jobs: Iterable[Active], now_us: int) -> list[Active]:
        """Return jobs that are in the order of a policy with the aged ones first."""
        jobs = list(jobs)
        if self._limit_us is None:
            return jobs
        aged = {one.index for one in jobs if self._aged_us(one) <= now_us}
        first = sorted((one for one in jobs if one.index in aged), key=lambda one: one.index)
        return [*first, *(one for one in jobs if one.index not in aged)] if first else jobs

    def next_us(self, moment: Moment, shares: Iterable[Share]) -> int | None:
        """Return when the next of the jobs that wait has waited for too long; None for never."""
        if self._limit_us is None:
            return None
        running = {index for share in shares for index in share.jobs}
        times = (self._aged_us(one) for one in moment.jobs.values() if one.index not in running)
        return min((time_us for time_us in times if time_us > moment.now_us), default=None)

    def _aged_us(self, active: Active) -> int:
        """Return when a job has waited for too long if it waits from now on."""
        assert self._limit_us is not None
        return active.job.submit_us + active.run_us + self._limit_us

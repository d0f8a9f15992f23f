"""A bound on waiting under policies that let others go first: who has waited for too long comes before all others."""

from __future__ import annotations

from collections.abc import Iterable

from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.option_values import OpenValues, hours, hours_us, whole_numbers
from jigsaw_opt.scheduling.plain import Plain, Shape, listed, whole
from jigsaw_opt.scheduling.policy import JobState, Observation

AGING: OpenValues = hours("none", "24", "72")
"""The time of waiting after which a job comes first; ``none`` for never."""
HYSTERESIS: OpenValues = whole_numbers("1", "0", "2", "4", most=1000)
"""How many restart times less a job must have left than one that runs, to take its GPUs."""


class Aging:
    """Puts jobs first that have waited for long: who has first waited so long comes first, and stays there.

    Time on GPUs is no waiting. What a job has waited it never loses, so once aged it goes on to its end: only jobs that
    aged before it come before it.
    """

    def __init__(self, limit: str) -> None:
        self._limit_us = None if limit == "none" else hours_us(limit)
        self._aged: dict[int, None] = {}

    def order(self, jobs: Iterable[JobState], observation: Observation) -> list[JobState]:
        """Return the jobs with the aged ones first, the others in the order of the policy, and note who has aged."""
        jobs = list(jobs)
        if self._limit_us is None:
            return jobs
        self._aged = {index: None for index in self._aged if index in observation.jobs}
        times = {index: self._aged_us(one) for index, one in observation.jobs.items() if index not in self._aged}
        new = (index for index in times if times[index] <= observation.now_us)
        self._aged |= dict.fromkeys(sorted(new, key=lambda index: (times[index], index)))
        by_number = {one.index: one for one in jobs}
        first = [by_number[index] for index in self._aged if index in by_number]
        return [*first, *(one for one in jobs if one.index not in self._aged)]

    def next_us(self, observation: Observation, shares: Iterable[Share]) -> int | None:
        """Return when the next waiting job will have waited for too long; None for never."""
        if self._limit_us is None:
            return None
        running = {index for share in shares for index in share.jobs}
        times = (self._aged_us(one) for one in observation.jobs.values() if one.index not in running)
        return min((time_us for time_us in times if time_us > observation.now_us), default=None)

    def _aged_us(self, active: JobState) -> int:
        """Return when a job has waited for too long if it waits from now on."""
        assert self._limit_us is not None
        return active.job.submit_us + active.run_us + self._limit_us

    def plain(self) -> dict[str, list[int]]:
        """Return what a policy has to remember under a key of its state: who has aged, in order."""
        return {} if self._limit_us is None else {"aged": list(self._aged)}

    def shape(self) -> dict[str, Shape]:
        """Return the shape of what `plain` gives."""
        return {} if self._limit_us is None else {"aged": listed(whole())}

    def restore(self, state: Plain, observation: Observation) -> None:
        """Go on from the state of a policy, of the right shape."""
        aged = state.get("aged", ())
        if len({*aged}) < len(aged) or not observation.known.issuperset(aged):
            raise ValueError("the aged are not jobs that there are, each once")
        if any(
            self._aged_us(observation.jobs[index]) > observation.now_us for index in aged if index in observation.jobs
        ):
            raise ValueError("a job has not waited for so long")
        self._aged = dict.fromkeys(aged)

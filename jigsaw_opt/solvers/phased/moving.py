"""Phases of jobs that may pause and move: who runs where by an order, or by who can wait no longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.phased.phases import Gpus, GroupProgress, Jobs, RunningJobs
from jigsaw_opt.solvers.phased.rates.jobs import OF_ONE, RateJob, RateJobs, whole_counts
from jigsaw_opt.solvers.phased.side_by_side import SideBySide
from jigsaw_opt.solvers.phased.timer import UntimedError

_MOST_LISTED = 512
"""Iterations of all jobs in a period, as far as each part may have one period of its own."""
_TRIED = 32
"""Periods of each part that the whole period is tried with."""
_FEW = 8
"""Jobs of a part up to which more is tried than what its rates are."""
_WORTH_AN_ITERATION = 1e-5
"""Share of the speed of all jobs for which a period may have one iteration more."""


class _SharingPart(NamedTuple):
    """Jobs that share GPUs or links.

    `counts`: iterations of each in a period of their own. `worth`: total cost of slowing them down, per share of their
    speed. `gain`: their gain for the objective per microsecond. `left`: number of periods that fit into the iterations
    that are left.
    """

    counts: Mapping[str, int]
    plan: Plan
    worth: float
    gain: float
    left: int

    @property
    def period_us(self) -> int:
        """Return the period of the part, in microseconds."""
        return self.plan.objective

    def times(self, period_us: int, room: int) -> int:
        """Return how often it fits into a period, if no more iterations than there is room for are listed."""
        # Every part takes place once at least; `_periods` has no period that is shorter than any part.
        return max(1, min(period_us // self.period_us, self.left, room // sum(self.counts.values())))


class MovingPolicy:
    """Phases at the rates of an order of jobs some of which may move.

    `order`: jobs of a group, those that come first in front. `jobs`: says at which rates they go, and where. `beside`:
    makes cyclic plans of parts and of phases. `last`: whether the last end counts or the sum. `thorough`: whether
    several counts are tried for each part, and whether its last jobs wait where the others gain by that.
    """

    def __init__(
        self, order: Sequence[RateJob], jobs: RateJobs, beside: SideBySide, last: bool, thorough: bool = False
    ) -> None:
        self._order, self._jobs, self._beside, self._last, self._thorough = order, jobs, beside, last, thorough

    def running(self, jobs: Jobs, progress: GroupProgress) -> RunningJobs:
        """Return the jobs that run from now on, each part at its own period as far as one period has all of them.

        `jobs`: the jobs of the group by name.
        """
        now = self._jobs.rates(self._order, progress)
        gpus = {job.name: job.gpus for job in now}
        parts = [*self._parts(jobs, now, progress, gpus)]
        if not parts:
            return RunningJobs({}, gpus)
        tried = (_filled(parts, period_us) for period_us in _periods(parts))
        # `_periods` is sorted, and `max` keeps the first of equals, so of equally good periods the shortest wins.
        times, _ = max(tried, key=lambda one: one[1])
        counts = {name: k * count for part, k in zip(parts, times, strict=True) for name, count in part.counts.items()}
        plan = self._beside.together([(part.plan, k) for part, k in zip(parts, times, strict=True)])
        return RunningJobs(counts, gpus, plan)

    def _parts(
        self, jobs: Jobs, now: Mapping[RateJob, float], progress: GroupProgress, gpus: Gpus
    ) -> Iterator[_SharingPart]:
        place = {job.name: number for number, job in enumerate(now)}
        running = [*now]
        # Within a part, jobs keep the order of priority in which `rates` has them: the last ones wait first.
        for names in self._beside.parts(gpus):
            own = [running[number] for number in sorted(place[name] for name in names)]
            yield self._part(jobs, own, now, progress, gpus)

    def _part(
        self, jobs: Jobs, own: Sequence[RateJob], now: Mapping[RateJob, float], progress: GroupProgress, gpus: Gpus
    ) -> _SharingPart:
        """Return jobs that share anything; the last ones wait where no cyclic plan is found, or where that pays."""
        rates = {job.name: now[job] for job in own}
        gains = self._gains(own, progress.remaining)
        tried: list[_SharingPart] = []
        for counts in self._counts(own, rates, progress.remaining, jobs[own[0].name]):
            try:
                plan = self._beside.part(counts, gpus)
            except UntimedError:
                # A job alone has a cyclic plan whenever there is time, so there is nothing left to drop.
                if len(own) == 1:
                    raise
                continue
            gain = sum(gains[name] * count for name, count in counts.items()) / plan.objective
            worth = sum(job.weight * progress.remaining[job.name] / rates[job.name] for job in own)
            left = min(progress.remaining[name] // count for name, count in counts.items())
            tried.append(_SharingPart(counts, plan, worth, gain, left))
        if len(own) > 1 and (self._tries_more(own) or not tried):
            # The recursion drops one job at a time, and ends with one job, which is never dropped.
            tried.append(self._part(jobs, own[:-1], now, progress, gpus))
        return max(tried, key=lambda part: part.gain)

    def _tries_more(self, own: Sequence[RateJob]) -> bool:
        return self._thorough and len(own) <= _FEW

    def _gains(self, own: Sequence[RateJob], remaining: Mapping[str, int]) -> dict[str, float]:
        """Return the worth of an iteration of each job: by Smith's rule its part of the weight.

        For a makespan, the worth of an iteration is its work.
        """
        if self._last:
            return {job.name: float(job.iteration_us * len(job.gpus)) for job in own}
        # Smith (1956): weight over time. The time is the divisor in `_part`, so each iteration carries its part of the
        # weight.
        return {job.name: job.weight / remaining[job.name] for job in own}

    def _counts(
        self,
        own: Sequence[RateJob],
        rates: Mapping[str, float],
        remaining: Mapping[str, int],
        first: Job | TaskGraphJob,
    ) -> list[dict[str, int]]:
        """Return the iterations of the jobs of a part to try; of a job alone, as many as its levels ask for."""
        if len(own) == 1:
            free = isinstance(first.depth, FreeDepth)
            found = [{own[0].name: count} for count in (OF_ONE if free else OF_ONE[:1])]
        elif self._tries_more(own):
            found = [*whole_counts(own, rates), dict.fromkeys(rates, 1)]
        else:
            found = whole_counts(own, rates)[:1]
        return [{name: min(count, remaining[name]) for name, count in counts.items()} for counts in found]


def _periods(parts: Sequence[_SharingPart]) -> list[int]:
    """Return periods that some part fills, and that no part exceeds."""
    longest = max(part.period_us for part in parts)
    tried = {times * part.period_us for part in parts for times in range(1, _TRIED + 1)}
    # A part that is very short does not reach the longest in so few periods; its first multiple that does is added.
    tried |= {-(-longest // part.period_us) * part.period_us for part in parts}
    return sorted(period_us for period_us in tried if period_us >= longest)


def _filled(parts: Sequence[_SharingPart], period_us: int) -> tuple[list[int], float]:
    """Return how often each part takes place in a period, and what share of the speeds that comes to, by worth."""
    room = max(1, _MOST_LISTED // len(parts))
    found, share, listed = [], 0.0, 0
    for part in parts:
        times = part.times(period_us, room)
        found.append(times)
        listed += times * sum(part.counts.values())
        # A part whose iterations are used up loses nothing by the rest of the period.
        whole = times == part.left or times * part.period_us >= period_us
        share += part.worth * (1.0 if whole else times * part.period_us / period_us)
    return found, share / sum(part.worth for part in parts) - _WORTH_AN_ITERATION * listed


_TARGETS = 4
"""Moments that are tried, from the least makespan that may be to one that there is: each costs a plan of all phases."""


def wrap_around_us(order: Sequence[RateJob], gpus: int, known_us: float) -> Iterator[float]:
    """Yield times by which all jobs may have ended, from McNaughton's bound up to a known makespan.

    Times in microseconds, the earliest first.
    """
    # McNaughton (1959): jobs that may pause and move cannot all end before the mean work of a GPU, nor before the
    # longest job.
    work_us = sum(job.alone_us * len(job.gpus) for job in order) / gpus
    least_us = max(work_us, *(job.release_us + job.alone_us for job in order))
    yield from (least_us + (known_us - least_us) * k / _TARGETS for k in range(_TARGETS) if least_us < known_us)


class LeastLaxityPolicy:
    """Phases in which jobs run that would end too late otherwise, then those that run already, then others.

    `target_us`: when all of them shall have ended.
    """

    def __init__(self, order: Sequence[RateJob], jobs: RateJobs, beside: SideBySide, target_us: float) -> None:
        self._order, self._jobs, self._beside, self._target_us = order, jobs, beside, target_us
        # Phases last whole periods. A job that can wait less than an iteration cannot wait until the next decision.
        self._grain_us = max(job.iteration_us for job in order)

    def running(self, jobs: Jobs, progress: GroupProgress) -> RunningJobs:
        """Return the jobs that run from now on, until one that waits can wait no longer at the latest.

        `jobs`: the jobs of the group by name.
        """
        spare_us = {job.name: self._spare_us(job, jobs[job.name], progress) for job in self._order}

        def rank(job: RateJob) -> tuple[bool, bool, float]:
            spare = spare_us[job.name]
            # Urgent jobs come first. Among the others those that run go on, since each restart costs time.
            return spare >= self._grain_us, not progress.goes_on(job.name), spare

        found = MovingPolicy(sorted(self._order, key=rank), self._jobs, self._beside, True).running(jobs, progress)
        waiting = (spare_us[name] for name in progress.remaining if name not in found.counts)
        # Jobs that are urgent already and found no room are left out: the phase would end at once, and again with the
        # same jobs.
        least_us = min((spare for spare in waiting if spare >= self._grain_us), default=None)
        return found if least_us is None else found._replace(until_us=progress.now_us + int(least_us))

    def _spare_us(self, job: RateJob, asked: Job | TaskGraphJob, progress: GroupProgress) -> float:
        """Return how long a job can wait, in microseconds, after its release and its restart."""
        begin_us = progress.now_us if progress.goes_on(job.name) else max(progress.now_us, progress.ready_us(asked))
        return self._target_us - begin_us - progress.remaining.get(job.name, 0) * job.iteration_us

"""Phases of jobs that may move and shall all end by a moment: who can wait no longer runs.

On GPUs that are alike, jobs of one GPU whose restarts take no time end by the least makespan that there is, that of
McNaughton's wrap-around rule (McNaughton, 1959): whoever has slack yields, and no GPU is idle before the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.phased.moving import MovingPolicy
from jigsaw_opt.solvers.phased.phases import GroupProgress, RunningJobs
from jigsaw_opt.solvers.phased.rate_jobs import RateJob, RateJobs
from jigsaw_opt.solvers.phased.side_by_side import SideBySide

__all__ = ["LeastLaxityPolicy", "wrap_around_us"]

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

    def running(self, jobs: Mapping[str, Job | TaskGraphJob], progress: GroupProgress) -> RunningJobs:
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

"""When a waiting job will start: its queue is simulated forward many times, with run times and arrivals drawn from the
jobs before (Smith, Taylor and Foster, JSSPP 1999). Described in docs/when.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from random import Random

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import Active
from jigsaw_opt.simulation.run_times import RunTimes, arrivals, lasting
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.taken_over import ClusterQueue, TakenOver
from jigsaw_opt.text import called, counted, duration, printable

__all__ = ["PastJobs", "StartPrediction", "predict_start"]

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_MOST_DAYS = 128
_SHARES = (0.5, 0.9)


@dataclass(frozen=True, slots=True)
class StartPrediction:
    """When a waiting job starts, in simulations of its queue.

    Parameters
    ----------
    job
        Its name.
    now_us
        The time at which was asked.
    starts_us
        When it started in each simulation, the earliest first, without those in which it did not.
    samples
        How many simulations there were.
    """

    job: str
    now_us: int
    starts_us: tuple[int, ...]
    samples: int

    def interval_us(self, share: float) -> tuple[int | None, int | None]:
        """Return between which times it starts with a probability of `share`; None for later than was simulated."""
        rank = floor(round((self.samples + 1) * (1.0 - share) / 2, 6))
        ranks = max(rank - 1, 0), min(self.samples - rank, self.samples - 1)
        low, high = (self.starts_us[k] if k < len(self.starts_us) else None for k in ranks)
        return low, high

    @property
    def median_us(self) -> int | None:
        """The time by which it has started in half of the simulations; None for later than was simulated."""
        return self.interval_us(0.0)[0]

    def __str__(self) -> str:
        half, most = (self._told(share) for share in _SHARES)
        return (
            f"{called('job', printable(self.job))} starts {half} with a probability of 50 %, and {most} with 90 %"
            f" ({counted(self.samples, 'simulation')} of the queue)."
        )

    def _told(self, share: float) -> str:
        low, high = (
            None if time_us is None else duration(time_us - self.now_us) for time_us in self.interval_us(share)
        )
        if low is None:
            return f"in more than {_MOST_DAYS} days, or never,"
        return f"in {low} or later" if high is None else f"in {low}" if low == high else f"in {low} to {high}"

    def plain(self) -> Plain:
        """Return all figures as values of JSON."""
        intervals = {f"{share:.0%}".removesuffix("%"): list(self.interval_us(share)) for share in _SHARES}
        return {
            "job": self.job,
            "now_us": self.now_us,
            "median_us": self.median_us,
            "intervals_us": intervals,
            "samples": self.samples,
            "not_started": self.samples - len(self.starts_us),
        }


@dataclass(frozen=True, slots=True)
class PastJobs:
    """The jobs up to a moment, from which run times and arrivals are drawn.

    Parameters
    ----------
    ended
        Jobs that ended, in this order, each with its duration.
    arrive
        Whether later jobs arrive as they did before.
    """

    ended: tuple[TraceJob, ...]
    arrive: bool = True


def predict_start(
    setting: Setting,
    queue: ClusterQueue,
    job: int,
    past: PastJobs | None,
    samples: int = 200,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> StartPrediction:
    """Simulate a queue forward `samples` times, and note when a job starts.

    Parameters
    ----------
    setting
        The cluster, how fast jobs run there, and who decides; its workload is not looked at.
    queue
        The jobs that wait and run.
    job
        Number of the job, which waits.
    past
        What run times and arrivals are drawn from; None for jobs that last as they state, and no arrivals.
    samples
        How many simulations.
    seed
        Of all draws. The first simulations of a seed are the same whatever `samples` is.
    stop
        Is asked after each simulation whether to be content with those that there are.

    Raises
    ------
    UsageError
        There is nothing to draw from, the number of simulations is below 1, or the policy refuses a job.
    """
    if samples < 1:
        raise UsageError(f"there is at least 1 simulation, not {samples}")
    if past is not None and not past.ended:
        raise UsageError("no job has ended before, so there is nothing to tell how long jobs last")
    draws = _Draws(setting, queue, past)
    starts: list[int | None] = []
    while len(starts) < samples and not (starts and stop()):
        starts.append(_start_us(setting, queue, job, draws, f"{seed}/{len(starts)}"))
    found = tuple(sorted(start_us for start_us in starts if start_us is not None))
    return StartPrediction(queue.jobs[job].job.name, queue.now_us, found, len(starts))


class _Draws:
    """What is drawn of a queue."""

    def __init__(self, setting: Setting, queue: ClusterQueue, past: PastJobs | None) -> None:
        self._setting, self._queue, self.past = setting, queue, past
        self.run_us = {index: self._productive_us(one) for index, one in queue.jobs.items()}
        ended = () if past is None else past.ended
        self.ended = [(job, job.duration_us or setting.performance.alone_us(job)) for job in ended]
        running = [(one.job, self.run_us[k]) for k, one in queue.jobs.items() if one.share is not None]
        self._times = RunTimes(self.ended, running)

    def _productive_us(self, active: Active) -> int:
        """Return how much of its duration a job has behind it, which on fast GPUs is more than the time that it ran."""
        job, ran_us = active.job, active.run_us - active.starts * self._setting.restart_of(active.job)
        if active.share is None or not _is_drawn(job):
            return max(0, ran_us)
        hour = lasting(job, _HOUR_US)
        (pace,) = self._setting.performance.paces(active.share, [hour], [0])
        return max(0, ran_us * pace.rate * _HOUR_US // self._setting.performance.work(hour))

    def jobs(self, random: Random) -> dict[int, TraceJob]:
        """Return the jobs of the queue by number, with durations that are drawn."""
        seen = {index: one.job for index, one in self._queue.jobs.items()}
        if self.past is None:
            return seen
        return {
            index: lasting(job, self._times.draw(job, self.run_us[index], random)) if _is_drawn(job) else job
            for index, job in seen.items()
        }

    def done(self, jobs: Mapping[int, TraceJob]) -> dict[int, int]:
        """Return the work done of each job."""
        if self.past is None:
            return {index: one.done for index, one in self._queue.jobs.items()}
        done = {index: one.done for index, one in self._queue.jobs.items()}
        for index, job in jobs.items():
            if (lasts_us := job.duration_us) is not None:
                done[index] = self._setting.performance.work(job) * self.run_us[index] // lasts_us
        return done

    def arrivals(self, jobs: Mapping[int, TraceJob], days: int, random: Random) -> Sequence[TraceJob]:
        """Return the jobs that arrive in the next days."""
        if self.past is None or not self.past.arrive:
            return ()
        known = sorted((*self.past.ended, *jobs.values()), key=lambda job: job.submit_us)
        return tuple(arrivals(known, self._queue.now_us, days, random))


def _is_drawn(job: TraceJob) -> bool:
    """Return whether a job's duration is drawn: it states none, or no more than that."""
    return job.iterations is None or job.duration_us is not None


def _start_us(setting: Setting, queue: ClusterQueue, job: int, draws: _Draws, seed: str) -> int | None:
    """Return when a job starts in one simulation; None for later than can be simulated, or never."""
    jobs = draws.jobs(Random(seed))
    done, days = draws.done(jobs), 1
    while days <= _MOST_DAYS:
        later = draws.arrivals(jobs, days, Random(f"{seed}/arrivals"))
        workload = Workload("queue", (*_numbered(jobs, queue), *later))
        simulation = TakenOver(replace(setting, workload=workload), queue, done, draws.ended)
        until_us = queue.now_us + days * _DAY_US if later else None
        try:
            simulation.run(lambda: simulation.start_us(job) is not None, until_us)  # noqa: B023
        except JigsawError:  # it waits for ever
            return None
        start_us = simulation.start_us(job)
        if start_us is not None or not later:
            return start_us
        days *= 2
    return None


def _numbered(jobs: Mapping[int, TraceJob], queue: ClusterQueue) -> Sequence[TraceJob]:
    """Return a job for each number: jobs that have ended are as the one before or, at the beginning, the first."""
    at = next(iter(jobs.values()))
    found = []
    for index in range(queue.next_job):
        at = jobs.get(index, at)
        found.append(at)
    return found

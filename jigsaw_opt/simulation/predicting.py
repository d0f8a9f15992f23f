"""When a waiting job will start: its queue is simulated forward many times, with run times and arrivals drawn from the
jobs before (Smith, Taylor and Foster, JSSPP 1999). Described in docs/simulation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from jigsaw_opt.errors import JigsawError, UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.cluster_queue import ClusterQueue, PastJobs
from jigsaw_opt.scheduling.policy import JobState, Policy, PolicySetting
from jigsaw_opt.scheduling.start_prediction import MOST_DAYS, StartPrediction
from jigsaw_opt.simulation.run_times import RunTimes, arrivals, lasting
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.taken_over import TakenOver
from jigsaw_opt.text import called, duration, printable

__all__ = ["predict_start_live", "predict_starts"]

_MOST_NUMBERED = 1_000_000
"""Jobs of a queue and of those that left it: a simulation has a place for each number."""
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_OVERDUE_US = 600_000_000
"""A job that waits no longer may do so for reasons that pass."""


def predict_starts(
    setting: Setting,
    queue: ClusterQueue,
    jobs: Sequence[int],
    past: PastJobs | None,
    samples: int = 200,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> list[StartPrediction]:
    """Simulate a queue forward `samples` times, and note when jobs start.

    For each job, in the order of `jobs`, when it starts in each simulation.

    `setting`: the cluster, how fast jobs run there, and who decides; its workload is not looked at. `past`: what run
    times and arrivals are drawn from; None for jobs that last as they state, and no arrivals: then there is one
    simulation. `seed`: seed of all draws. The first simulations of a seed are the same whatever `samples` is. `stop`:
    is asked after each simulation whether to be content with those that there are.
    """
    if samples < 1:
        raise UsageError(f"there is at least 1 simulation, not {samples}", code="out-of-range", path="samples")
    if past is not None and not past.ended:
        raise UsageError("no job has ended before, so there is nothing to tell how long jobs last", code="empty")
    if past is None:
        samples = 1
    if queue.next_job > _MOST_NUMBERED:
        told = f"the queue has numbered {queue.next_job:,} jobs, and at most {_MOST_NUMBERED:,} are simulated"
        raise UsageError(told, code="too-large")
    draws = _Draws(setting, queue, past)
    starts: list[dict[int, int]] = []
    while len(starts) < samples and not (starts and stop()):
        starts.append(_starts_us(setting, queue, jobs, draws, f"{seed}/{len(starts)}"))
    found = []
    for number in jobs:
        job, starts_us = queue.jobs[number].job, tuple(sorted(one[number] for one in starts if number in one))
        one = StartPrediction(job.name, queue.now_us, starts_us, len(starts))
        found.append(replace(one, warning=_overdue(one, job, setting.round_us)))
    return found


def predict_start_live(
    known: PolicySetting,
    policy: Policy,
    options: Mapping[str, str],
    queue: ClusterQueue,
    job: int,
    past: PastJobs | None,
    samples: int,
    seed: int,
) -> StartPrediction:
    """Return when a waiting job will start, as `predict_starts` does, for a policy with options.

    `past`: jobs that ended before, from which is drawn; None for nothing to draw from.
    """
    times = known.round_us, known.restart_us
    nobody = Workload("queue", ())
    setting = Setting(known.cluster, nobody, known.performance, None, *times, known.seed, None, policy, options)
    return predict_starts(setting, queue, [job], past, samples, seed)[0]


def _overdue(prediction: StartPrediction, job: TraceJob, round_us: int) -> str:
    """Return why a prediction is not to be trusted whose job has waited although it would start at once; else ""."""
    waited_us, latest_us = prediction.now_us - job.submit_us, prediction.simulated_us(0.5)[1]
    at_once = latest_us is not None and latest_us <= prediction.now_us + round_us
    if not at_once or waited_us <= _OVERDUE_US:
        return ""
    held = f", and the file says that it is held by {job.held_by}" if job.held_by else ""
    return (
        f"{called('job', printable(job.name))} has waited for {duration(waited_us)} although by this policy and cluster"
        f" it would start at once{held}: the policy or the cluster is another than the one that decides, so do not"
        " trust this prediction"
    )


class _Draws:
    """Draws of the future of a queue."""

    def __init__(self, setting: Setting, queue: ClusterQueue, past: PastJobs | None) -> None:
        self._setting, self._queue, self.past = setting, queue, past
        self.run_us = {index: self._productive_us(one) for index, one in queue.jobs.items()}
        ended = () if past is None else past.ended
        self.ended = [(job, job.duration_us or setting.performance.alone_us(job)) for job in ended]
        running = [(one.job, self.run_us[k]) for k, one in queue.jobs.items() if one.share is not None]
        self._times = RunTimes(self.ended, running)

    def _productive_us(self, active: JobState) -> int:
        """Return how much of its duration a job has behind it, which on fast GPUs is more than the time that it ran."""
        job, ran_us = active.job, active.run_us - active.starts * self._setting.restart_of(active.job)
        if active.share is None or not _is_drawn(job):
            return max(0, ran_us)
        hour = lasting(job, _HOUR_US)
        (speed,) = self._setting.performance.speeds(active.share, [hour], [0])
        return max(0, ran_us * speed.rate * _HOUR_US // self._setting.performance.work(hour))

    def jobs(self, random: Random) -> dict[int, TraceJob]:
        """Return the jobs of the queue by number, with durations that are drawn."""
        seen = {index: one.job for index, one in self._queue.jobs.items()}
        if self.past is None:
            return seen
        periods: dict[object, float] = {}
        return {
            index: lasting(job, self._times.draw(job, self.run_us[index], random, periods)) if _is_drawn(job) else job
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


def _starts_us(setting: Setting, queue: ClusterQueue, asked: Sequence[int], draws: _Draws, seed: str) -> dict[int, int]:
    """Return when jobs start in one simulation, without those that start later than can be simulated, or never."""
    jobs = draws.jobs(Random(seed))
    done, days = draws.done(jobs), 1
    starts: dict[int, int] = {}
    while True:
        later = draws.arrivals(jobs, days, Random(f"{seed}/arrivals"))
        workload = Workload("queue", (*_numbered(jobs, queue), *later))
        simulation = TakenOver(replace(setting, workload=workload), queue, done, draws.ended)
        until_us = queue.now_us + days * _DAY_US if later else None
        try:
            simulation.run(lambda: simulation.has_started(asked, starts), until_us)  # noqa: B023
        except JigsawError:  # some wait for ever
            return starts
        if len(starts) == len(asked) or not later or days > MOST_DAYS // 2 or simulation.outcome.hindrance:
            return starts
        days *= 2


def _numbered(jobs: Mapping[int, TraceJob], queue: ClusterQueue) -> Sequence[TraceJob]:
    """Return a job for each number: jobs that have ended are as the one before or, at the beginning, the first."""
    at = next(iter(jobs.values()))
    found = []
    for index in range(queue.next_job):
        at = jobs.get(index, at)
        found.append(at)
    return found

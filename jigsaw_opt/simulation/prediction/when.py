"""When a waiting job will start, by the file of its queue: one call.

The same is asked at moments of the past whose answers a trace tells: when would a job start that waited then? Each is
answered from what was known at its time, so that the errors of the answers tell how far the intervals of today are to
be corrected (`jigsaw_opt/scheduling/live/start_prediction.py`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Any

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents.readers.times import moment_us
from jigsaw_opt.errors import UsageError, malformed, out_of_range, unsupported
from jigsaw_opt.problem.calendar import Calendar
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.workload import LARGEST, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.start_prediction import (
    FEWEST_ANSWERS,
    FEWEST_SAMPLES,
    ClusterQueue,
    PastAnswer,
    PastJobs,
    StartPrediction,
)
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policy import JobState, Policy
from jigsaw_opt.simulation.engine.setting import Setting, reading_told
from jigsaw_opt.simulation.inputs.request import GivenWorkload, SimulationRequest, read_setting
from jigsaw_opt.simulation.inputs.workload_changes import most_gpus_for
from jigsaw_opt.simulation.prediction.predicting import predict_starts
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.text import counted, named, nearest

_HOUR_US = 3_600_000_000
_FEW = "has fewer GPUs of a type that they may have"


@dataclass(frozen=True, slots=True)
class TraceQueue:
    """The queue of a trace at a time.

    `queue`: the jobs that waited and ran. `remarks`: what was left aside, in a sentence each.
    """

    queue: ClusterQueue
    past: PastJobs
    remarks: tuple[str, ...] = ()


def time_in(workload: Workload, text: str | None) -> int:
    """Return a time on the clock of a workload, in microseconds.

    `text`: hours from the first submission, or a date and time; None for the last time that the workload tells.
    """
    jobs = (*workload.jobs, *workload.unfinished)
    if text is None:
        times = (time_us for job in jobs for time_us in (job.submit_us, job.start_us, job.end_us))
        return max(time_us for time_us in times if time_us is not None)
    found = moment_us(text)
    if found is None:
        try:
            at_us = round(float(text) * _HOUR_US)
        except (ValueError, OverflowError):
            what = f"a date as 2026-01-31T08:30, or hours from the first submission, not {text!r}"
            raise malformed("at", f"a time is {what}") from None
    elif workload.first_us is None:
        raise unsupported("at", "the workload has no dates; a time is in hours from its beginning")
    elif found.zoned != workload.zoned:
        message = f"the dates of the workload have {'a' if workload.zoned else 'no'} zone; {text!r} is otherwise"
        raise UsageError(message, code="mismatch", path="at")
    else:
        at_us = found.time_us - workload.first_us
    if abs(at_us) > LARGEST:
        message = f"a time is at most {LARGEST / _HOUR_US:g} hours from the first submission, not {text!r}"
        raise out_of_range("at", message)
    return at_us


def queue_at(setting: Setting, at_us: int, arrive: bool = True) -> TraceQueue:
    """Return what ran, waited and had ended at a time of the workload of a setting.

    Jobs are placed on the nodes that they name. Of others the GPUs are not known: the widest are placed first, each on
    as few servers as can be.
    """
    workload = setting.workload
    _require_record(workload, at_us)
    ended = [job for job in workload.jobs if _end_us(job) <= at_us]
    present = [job for job in (*workload.jobs, *workload.unfinished) if job.submit_us <= at_us < _end_us(job)]
    most = most_gpus_for(setting.cluster)
    wide = [job for job in present if job.gpus > most(job)]
    present = sorted((job for job in present if job.gpus <= most(job)), key=lambda job: job.submit_us)
    starts = {k: job.start_us for k, job in enumerate(present) if job.start_us is not None}
    runs = {k: at_us - start_us for k, start_us in starts.items() if start_us <= at_us}
    shares = _shares(setting, {k: present[k] for k in runs})
    jobs = dict[int, JobState]()
    for k, job in enumerate(present):
        unknown = replace(job, start_us=None, end_us=None)
        jobs[k] = JobState(k, unknown, 1, run_us=runs.get(k, 0), share=shares.get(k), starts=k in runs)
    past = PastJobs(tuple(sorted(ended, key=_end_us)), arrive)
    names = named([job.name for job in wide])
    remarks = (f"{counted(len(wide), 'job')} left aside, as the cluster {_FEW}: {names}",) if wide else ()
    return TraceQueue(ClusterQueue(at_us, jobs, tuple(shares.values()), next_job=len(jobs)), past, remarks)


def waiting_job(workload: Workload, queue: ClusterQueue, name: str) -> int:
    """Return the number of a job that waits.

    `name`: name of the job; that of an array, as in ``7`` or ``7_[0-3%2]``, is for the first of its tasks that waits.
    """
    array = name.partition("_[")[0]
    found = [index for index, one in queue.jobs.items() if one.job.name == name]
    found = found or [index for index, one in queue.jobs.items() if one.job.array == array]
    for index in found:
        if queue.jobs[index].share is None:
            return index
    if found:
        raise UsageError(f"job {name!r} runs at that time", code="contradiction", path="job")
    waiting = [one.job.name for one in queue.jobs.values() if one.share is None]
    for job in (*workload.jobs, *workload.unfinished):
        if job.name == name:
            when = "has ended by that time" if _end_us(job) <= queue.now_us else f"is left aside: the cluster {_FEW}"
            when = "is submitted only later" if job.submit_us > queue.now_us else when
            raise UsageError(f"job {name!r} {when}", code="contradiction", path="job")
    message = f"no job {name!r} waits; {nearest(name, waiting)}" if waiting else "no job waits at that time"
    raise UsageError(message, code="unknown-name", path="job")


def _end_us(job: TraceJob) -> int:
    """Return when a job ended; one that has a duration and no record ended before everything that is asked for."""
    if job.end_us is not None:
        return job.end_us
    return LARGEST + 1 if job.iterations is None else -LARGEST


def _require_record(workload: Workload, at_us: int) -> None:
    """Refuse a moment of which the workload does not tell who waited and who ran."""
    lacking = [job.name for job in workload.jobs if job.start_us is None or job.end_us is None]
    later = any(job.submit_us > at_us for job in workload.jobs)
    if lacking and (later or not workload.unfinished):
        message = f"the workload does not say when {counted(len(lacking), 'job')} started and ended, {lacking[0]!r}"
        raise UsageError(f"{message} for one, so it does not tell who waited then", code="missing-field")


def _shares(setting: Setting, jobs: Mapping[int, TraceJob]) -> dict[int, Share]:
    """Place jobs that run: those first that name nodes of the cluster, then those of a type of GPU, then the widest."""
    held, free = sum(job.gpus for job in jobs.values()), FreeGpus(setting)
    if held > setting.gpu_count:
        message = f"{counted(held, 'GPU')} were held then, and the cluster has {setting.gpu_count}"
        raise UsageError(message, code="does-not-fit")
    found: dict[int, Share] = {}
    number = {server.name: k for k, server in enumerate(setting.cluster.servers)}
    for index, job in jobs.items():
        if job.nodes and all(name in number for name in job.nodes):
            placed = free.place_on(job, [number[name] for name in job.nodes])
            if placed is not None:
                found[index] = Share((index,), placed)
    left = {k: job for k, job in jobs.items() if k not in found}
    typed = {k: replace(job, gpu_types=(job.ran_on,)) if job.ran_on else job for k, job in left.items()}
    for index, job in sorted(typed.items(), key=lambda entry: (entry[1].gpu_types is None, -entry[1].gpus)):
        gpus = free.place(job, "packed")
        if gpus is None:
            message = f"job {job.name!r} ran then, and finds no GPUs on this cluster beside the others that ran"
            raise UsageError(message, code="does-not-fit")
        found[index] = Share((index,), gpus)
    return found


PAST_DAYS = 5
"""Errors of so many days are looked at: a queue goes through good and bad weeks."""
_AT_ONCE = 3
"""Jobs that are asked about at one moment, as simulations of the same queue tell of all of them."""
_SAMPLES = 19
"""Simulations of a moment: so many that one in twenty starts lies before the first of them, and one behind the last."""


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """When a waiting job will start.

    `prediction`: its starts in the simulations, which give intervals. `policy`: who decides. `waiting, running, past`:
    numbers of jobs that wait and run at that time, and that have ended before. `remarks`: what was left aside or is not
    to be trusted, in a sentence each.
    """

    prediction: StartPrediction
    policy: object
    waiting: int
    running: int
    past: int
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.prediction)

    def plain(self) -> dict[str, Any]:
        """Return all figures as values of JSON."""
        counts = {name: getattr(self, name) for name in ("policy", "waiting", "running", "past")}
        return {**self.prediction.plain(), **counts}


@typed
def when(
    workload: GivenWorkload,
    cluster: str | Cluster | Instance,
    job: str,
    policy: str | Policy = "backfill",
    *,
    at: str | float | None = None,
    arrivals: bool = True,
    samples: int = 200,
    questions: int = 30,
    round_s: float = 60.0,
    seed: int = 0,
    columns: str = "",
    speeds: str = "",
    cancel: threading.Event | None = None,
) -> PredictedStart:
    """Return when a waiting job will start, by simulations of its queue.

    Parameters
    ----------
    workload
        Jobs that wait, run and have ended, as in `SimulationRequest`.
    cluster
        The servers, an instance that has them, or text as in ``16x4:v100``.
    job
        Name of the job; that of an array is for the first of its tasks that waits.
    policy
        Who decides, or ``NAME:OPTION=VALUE...``.
    at
        Time at which is asked: a date, or hours from the first submission; None for the last that the workload tells.
    arrivals
        Whether later jobs arrive as on days before.
    samples
        Number of simulations of the queue.
    questions
        Moments of the last days at which the same is asked; how far the answers were wrong corrects the intervals.
    round_s, seed, columns, speeds
        As in `SimulationRequest`.
    cancel
        Set by another thread, it ends the simulations, and what there is counts; so does a first Ctrl-C or SIGTERM in
        the main thread.

    Returns
    -------
    PredictedStart
        Intervals, and what was left aside.

    Raises
    ------
    UsageError, InvalidInputError
        Parts are wrong, the job does not wait, or the workload does not tell who waited then.
    """
    own: dict[str, Any] = {"round_s": round_s, "seed": seed, "columns": columns, "speeds": speeds}
    # Durations in the file have what a start costs.
    own |= {"performance": "seconds", "restart_s": 0.0, "too_wide": "skip"}
    setting = read_setting(SimulationRequest(workload, cluster, policy, **own))
    at_us, cancel = time_in(setting.workload, None if at is None else str(at)), cancel or threading.Event()
    found = queue_at(setting, at_us, arrivals)
    number = waiting_job(setting.workload, found.queue, job)
    with on_interrupt(cancel.set):
        asked = setting, found.queue, [number], found.past
        (prediction,) = predict_starts(*asked, samples, seed, cancel.is_set)
        answers, silent = past_answers(setting, at_us, arrivals, questions, seed, cancel.is_set)
    waiting = sum(one.share is None for one in found.queue.jobs.values())
    remarks = [*reading_told([setting], setting.workload.unfinished), *found.remarks]
    if (name := found.queue.jobs[number].job.name) != job:
        remarks.append(f"{job} is an array, and {name} is the first of its tasks that waits")
    remarks += _doubts(prediction.samples, len(answers), silent)
    counts = waiting, len(found.queue.jobs) - waiting, len(found.past.ended)
    found_start = replace(prediction, answers=tuple(answers))
    return PredictedStart(found_start, setting.words["policy"], *counts, tuple(remarks))


def _doubts(samples: int, answers: int, silent: int) -> Iterator[str]:
    """Yield sentences on simulations that are too few, and on questions of the past that tell nothing."""
    if samples < FEWEST_SAMPLES:
        few = counted(samples, "simulation")
        yield f"{few}, fewer than {FEWEST_SAMPLES}: an interval of 90 % is too narrow then"
    if silent:
        yield f"{counted(silent, 'moment')} of the past left aside, at which the file does not tell who ran"
    if answers < FEWEST_ANSWERS:
        few = f"{counted(answers, 'answer')} of the last days, fewer than {FEWEST_ANSWERS}"
        yield f"the intervals are as simulated: {few}"


def past_answers(
    setting: Setting,
    at_us: int,
    arrive: bool = True,
    moments: int = 30,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[list[PastAnswer], int]:
    """Ask at moments of the past when jobs will start; return the answers and at how many moments there was none.

    Each job is asked about once. Of those that still wait there is no answer yet.

    `setting`: the cluster, who decides, and the workload whose jobs tell when they started and ended. `moments`: at how
    many moments, all at which jobs waited, of the last `PAST_DAYS` days. `stop`: is asked after each simulation whether
    to be content with the answers that there are.
    """
    starts = {
        job.name: (job.submit_us, job.start_us)
        for job in (*setting.workload.jobs, *setting.workload.unfinished)
        if job.start_us is not None and job.start_us <= at_us and job.held_by is None
    }
    random, answers, silent = Random(f"{seed}/past"), list[PastAnswer](), 0
    for then_us in _moments(list(starts.values()), at_us, moments, random):
        try:
            found = queue_at(setting, then_us, arrive)
            numbers = [k for k, one in found.queue.jobs.items() if one.share is None and one.job.name in starts]
            asked = random.sample(numbers, min(_AT_ONCE, len(numbers)))
            predictions = predict_starts(setting, found.queue, asked, found.past, _SAMPLES, seed, stop)
        except UsageError:
            silent += 1
            continue
        if stop():
            break
        for one in predictions:
            answers.append(PastAnswer(one, starts.pop(one.job)[1] - then_us))
    return answers, silent


def _moments(waits: Iterable[tuple[int, int]], at_us: int, count: int, random: Random) -> list[int]:
    """Draw moments at which jobs waited, all alike, and return them in order."""
    first_us = at_us - PAST_DAYS * 86_400_000_000
    waited = Calendar(busy=((max(submit_us, first_us), start_us) for submit_us, start_us in waits))
    ends = list(accumulate(end_us - start_us for start_us, end_us in zip(waited.starts, waited.ends, strict=True)))
    found = []
    for _ in range(count if ends else 0):
        within_us = random.randrange(ends[-1])
        k = bisect_right(ends, within_us)
        found.append(waited.ends[k] - (ends[k] - within_us))
    return sorted(found)

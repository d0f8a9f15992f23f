"""The queue of a cluster at a moment of a trace: what ran and waited then, and what had ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jigsaw_opt.documents.readers.times import moment_us
from jigsaw_opt.errors import UsageError, malformed, out_of_range, unsupported
from jigsaw_opt.problem.workload import LARGEST, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.start_prediction import ClusterQueue, PastJobs
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.workload_changes import most_gpus_for
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

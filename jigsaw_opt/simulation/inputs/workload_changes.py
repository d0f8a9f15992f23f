"""Workloads of a simulation, and their changes before: by the GPUs of the cluster, drawn models, and other time limits.

Jobs that need more GPUs than the cluster has are refused, or left out and counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from jigsaw_opt.documents.readers.table import Accept
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, argument
from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.gpu_types import matching_types
from jigsaw_opt.problem.workload import DURATION_UNITS_US, TraceJob, Workload, is_name, job_problems, left_out_told
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import TypeSpeeds

_REASON = "with more GPUs than the cluster has"
_UNTYPED = "gpu"
"""The type of the GPUs of a cluster that does not say which they are."""


def read_workload(given: str | Path | Workload, columns: str, accept: Accept) -> Workload:
    """Return a workload; raise with everything that is wrong with its jobs.

    `accept`: yields what else is wrong with a job.
    """
    return _checked(given, accept) if isinstance(given, Workload) else workload_from(str(given), columns, accept)


def _checked(workload: Workload, accept: Accept) -> Workload:
    """Return a workload of the caller, or raise with everything that is wrong with its jobs."""
    found = [] if workload.jobs else [Problem("$.jobs", "is empty", code="empty")]
    names: set[str] = set()
    for k, job in enumerate(workload.jobs):
        name = f"job {job.name!r}" if is_name(job.name) else ""
        wrong = [replace(problem, path=f"$.jobs[{k}].{problem.path}", hint=name) for problem in job_problems(job)]
        found += wrong or [Problem(f"$.jobs[{k}]", message, code="unsupported") for message in accept(job)]
        if job.name in names:
            found.append(Problem(f"$.jobs[{k}].name", f"there is a job {job.name!r} already", code="duplicate-name"))
        names.add(job.name)
    if found:
        raise InvalidInputError(found)
    return workload


def why_too_wide(job: TraceJob, needed: int, count: int, of: str = "") -> str | None:
    """Return why a job is too wide for some GPUs; None where it is not."""
    if needed <= count:
        return None
    skipped = argument("too_wide", "skip")
    return f"job {job.name!r} needs {needed} GPUs and the cluster has {count}{of}; {skipped} leaves such jobs out"


def fitted(
    workload: Workload, cluster: Cluster, performance: Performance, foreground_gpus: int | None, seed: int | None
) -> Workload:
    """Return a workload as it is simulated: without jobs that are too wide, and with what was decided told.

    `foreground_gpus`: jobs that ask for at least so many GPUs are in the foreground, too; None for no others. `seed`:
    seed by which each job gets one of the models that the performance model has; None for no drawn models.
    """
    workload = without_too_wide(with_types_of(workload, cluster), most_gpus_for(cluster))
    if foreground_gpus is not None:
        jobs = (replace(job, foreground=job.foreground or job.gpus >= foreground_gpus) for job in workload.jobs)
        workload = replace(workload, jobs=tuple(jobs))
    if seed is not None and isinstance(performance, Profiled):
        workload = with_models(workload, performance, sorted(performance.models), seed)
    workload = with_durations_told(workload, cluster, getattr(performance, "type_speeds", None))
    known = {name for job in workload.jobs for name in (job.name, job.array)}
    count = sum(job.after is not None and not known.issuperset(job.after) for job in workload.jobs)
    remark = "jobs after others that the workload does not have, which are taken to have ended"
    return _remarked(workload, remark, count)


def _remarked(workload: Workload, remark: str, count: int) -> Workload:
    """Return a workload with a remark on so many jobs, if there are any."""
    return replace(workload, remarks={**workload.remarks, remark: count}) if count else workload


def most_gpus_for(cluster: Cluster) -> Callable[[TraceJob], int]:
    """Return what tells how many GPUs of a cluster a job can have at most: those of one type that it may run on."""
    counts = Counter(cluster.gpus.types)
    if len(counts) == 1:
        return lambda job: cluster.gpu_count
    found: dict[tuple[str, ...] | None, int] = {}

    def most(job: TraceJob) -> int:
        if job.gpu_types not in found:
            names = [name for asked in job.gpu_types or counts for name in matching_types(asked, counts)]
            found[job.gpu_types] = max((counts[name] for name in names), default=0)
        return found[job.gpu_types]

    return most


def with_types_of(workload: Workload, cluster: Cluster) -> Workload:
    """Return a workload in which no job asks for a type of GPU where the cluster has one type: all run on that one.

    The same one where nothing changes; else it has a remark with the number of such jobs.
    """
    only, *others = Counter(cluster.gpus.types)

    def is_elsewhere(job: TraceJob) -> bool:
        return not others and job.gpu_types is not None and not _match(job.gpu_types, only)

    every = (*workload.jobs, *workload.unfinished)
    count = sum(map(is_elsewhere, every))
    if not count:
        return workload
    anywhere = tuple(replace(job, gpu_types=None) if is_elsewhere(job) else job for job in every)
    jobs, unfinished = anywhere[: len(workload.jobs)], anywhere[len(workload.jobs) :]
    remark = f"jobs that ask for another type of GPU than the cluster's {only}, and run there"
    changed = replace(workload, jobs=jobs, unfinished=unfinished)
    return _remarked(changed, remark, 0 if only == _UNTYPED else count)


def with_durations_told(workload: Workload, cluster: Cluster, speeds: TypeSpeeds | None) -> Workload:
    """Return a workload that tells on which types of GPU its durations are taken to be.

    `speeds`: how fast the types are; None where durations are taken as they are.
    """
    types = Counter(cluster.gpus.types)
    if speeds is not None:
        of = speeds.reference or "a GPU of speed 1"
        count = sum(job.measured_on is None for job in workload.jobs)
        remark = f"jobs that do not tell which type of GPU they ran on, with durations as on {of}"
    else:
        stated = [job.measured_on for job in workload.jobs if job.duration_us is not None]
        count = sum(not any(_match((of,), name) for name in types) for of in stated if of is not None)
        remark = (
            f"jobs that ran on another type of GPU than {', '.join(types)}, with durations as they are;"
            f" {argument('speeds')} says how fast types are"
        )
    return workload if set(types) == {_UNTYPED} else _remarked(workload, remark, count)


def _match(names: tuple[str, ...], gpu_type: str) -> bool:
    return any(matching_types(name, (gpu_type,)) for name in names)


def without_too_wide(workload: Workload, most: Callable[[TraceJob], int], *, rigid: bool = False) -> Workload:
    """Return the workload without the jobs that need more GPUs than there are; it says how many were left out.

    `most`: how many GPUs of the cluster a job can have at most. `rigid`: whether jobs run on as many GPUs as they ask
    for, and not on fewer where they say that they can.
    """
    jobs = tuple(job for job in workload.jobs if (job.gpus if rigid else job.fewest) <= most(job))
    if len(jobs) == len(workload.jobs):
        return workload
    left_out = {**workload.left_out, _REASON: len(workload.jobs) - len(jobs)}
    if not jobs:
        raise UsageError(f"no job is left; {left_out_told(left_out, 0)}", code="empty")
    return replace(workload, jobs=jobs, left_out=left_out)


_SECOND_US = 1_000_000


def with_models(workload: Workload, performance: Performance, models: Sequence[str], seed: int) -> Workload:
    """Return the workload with a model drawn for every job, each as likely as the others.

    A job gets as many iterations as last, alone at full depth on the GPUs that it asks for, as long as the trace says
    (its iterations are seconds, or what its model says). It keeps its name, submission and GPUs, so the mix by GPUs is
    that of the trace.

    `workload`: jobs with a second an iteration.
    """
    if not models:
        raise UsageError("there are no models to draw from", code="empty", path="models")
    draw = random.Random(seed)
    drawn = [_with_model(job, performance, models, draw) for job in workload.jobs]
    wrong = [one for one in drawn if isinstance(one, str)]
    if wrong:
        raise UsageError(*wrong, code="out-of-range")
    return replace(workload, jobs=tuple(one for one in drawn if isinstance(one, TraceJob)))


def _with_model(job: TraceJob, performance: Performance, models: Sequence[str], draw: random.Random) -> TraceJob | str:
    """Return the job with a model, or why it can have none."""
    if job.iterations is None:
        return f"job {job.name!r} has no duration"
    order = draw.sample(models, len(models))
    for model in order:
        one = replace(job, model=model, iterations=1)
        if performance.unknown(one) is None:
            count = round(job.iterations * DURATION_UNITS_US.get(job.model, _SECOND_US) / performance.alone_us(one))
            return replace(one, iterations=max(1, count))
    return f"job {job.name!r} can run with none of the models: {performance.unknown(replace(job, model=order[0]))}"

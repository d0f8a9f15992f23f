"""Workloads: in our own format, bundled ones, and traces in the formats of others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.file_bytes import read_file
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.documents.readers.traces.registry import READERS, read_trace
from jigsaw_opt.documents.readers.traces.workload_csv import columns_of
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, argument
from jigsaw_opt.instances.sources import workload_path
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob, Workload, is_name, job_problems
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.recorded import record_problems
from jigsaw_opt.simulation.inputs.request import SimulationRequest
from jigsaw_opt.simulation.inputs.workload_changes import most_gpus_for
from jigsaw_opt.text import nearest, readable


def load_workload(source: str, columns: str = "") -> Workload:
    """Return the jobs of a cluster over days, from a file or by name.

    Parameters
    ----------
    source
        A file in our own format, as CSV; a trace of others, as in ``slurm:FILE`` or ``philly:FILE``; or the name of a
        bundled workload.
    columns
        What a file in our own format calls its columns, as in ``gpus=num_gpu,submit_s=time``.

    Returns
    -------
    Workload
        Its jobs, and what was left out of it, by reason.

    Raises
    ------
    InvalidInputError
        The file cannot be read, or breaks its format; with every problem and its line.
    UsageError
        There is no such format, or a column that the format does not have.
    """
    return read_workload(source, columns, anything)


def read_workload(given: str | Workload, columns: str, accept: Accept) -> Workload:
    """Return a workload; raise with everything that is wrong with its jobs.

    `accept`: yields what else is wrong with a job.
    """
    if not isinstance(given, str):
        return _checked(given, accept)
    theirs = columns_of(columns)
    name, colon, file = given.partition(":")
    if colon and name not in READERS and name.isalnum() and not exists(given):
        raise UsageError(
            f"no format {name!r} of traces; {nearest(name, sorted(READERS))}", code="unknown-value", path="workload"
        )
    if name not in READERS or not file:
        name, file = "csv", given
    data, source = read_file(workload_path(file)), readable(file)
    # What is wrong with columns that the caller names is said of them.
    with nullcontext() if theirs else expecting(data, source, name):
        return read_trace(name, data, source, accept, theirs)


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


def acceptance(asked: SimulationRequest, cluster: Cluster, performance: Performance | None) -> Accept:
    """Return what is wrong with a job: its GPUs, its recorded times, or nothing that the performance model knows.

    `performance`: None where it is not known yet.
    """
    most, mixed = most_gpus_for(cluster), len({server.gpu_type for server in cluster.servers}) > 1

    def problems(job: TraceJob) -> Sequence[str]:
        wide = why_too_wide(job, job.fewest, most(job), " of a type that it may have" if mixed else "")
        if wide is not None and asked.too_wide == "skip":
            return ()
        found = [*([] if wide is None else [wide]), *(record_problems(job) if asked.is_record else ())]
        reason = None if performance is None or asked.draw_models else performance.unknown(job)
        if reason is not None:
            if isinstance(performance, Profiled) and job.duration_us is not None:
                drawn, given = argument("draw_models", True), argument("performance", "seconds")
                reason = f"has a duration and no model; {drawn} gives it one, {given} needs none"
                reason = f"job {job.name!r} {reason}"
            found.append(reason)
        return found

    return problems


def why_too_wide(job: TraceJob, needed: int, count: int, of: str = "") -> str | None:
    """Return why a job is too wide for some GPUs; None where it is not."""
    if needed <= count:
        return None
    skipped = argument("too_wide", "skip")
    return f"job {job.name!r} needs {needed} GPUs and the cluster has {count}{of}; {skipped} leaves such jobs out"

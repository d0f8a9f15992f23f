"""Workloads of a simulation, and what is wrong with their jobs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jigsaw_opt.documents.readers.table import Accept
from jigsaw_opt.errors import InvalidInputError, Problem, argument
from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob, Workload, is_name, job_problems
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine.recorded import record_problems
from jigsaw_opt.simulation.inputs.request import SimulationRequest
from jigsaw_opt.simulation.inputs.workload_changes import most_gpus_for


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

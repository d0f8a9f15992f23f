"""Jobs of a workload that need more GPUs than the cluster has: they are refused, or left out and counted."""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt.errors import UsageError, argument
from jigsaw_opt.problem.workload import TraceJob, Workload, left_out_told

__all__ = ["require_choice", "why_too_wide", "without_too_wide"]

_CHOICES = ("refuse", "skip")
_REASON = "with more GPUs than the cluster has"


def require_choice(word: str) -> None:
    """Raise a `UsageError` where a word says neither to refuse such jobs nor to skip them."""
    if word not in _CHOICES:
        raise UsageError(f"what becomes of jobs that are too wide is {' or '.join(_CHOICES)}, not {word!r}")


def why_too_wide(job: TraceJob, needed: int, count: int) -> str | None:
    """Return that a job that needs so many GPUs is too wide for a cluster of `count`; None where it is not."""
    if needed <= count:
        return None
    skipped = argument("too_wide", "skip")
    return f"job {job.name!r} needs {needed} GPUs and the cluster has {count}; {skipped} leaves such jobs out"


def without_too_wide(workload: Workload, count: int, *, rigid: bool = False) -> Workload:
    """Return the workload without the jobs that need more GPUs than there are; it says how many were left out.

    Parameters
    ----------
    workload
        The workload.
    count
        How many GPUs the cluster has.
    rigid
        Whether jobs run on as many GPUs as they ask for, and not on fewer where they say that they can.

    Raises
    ------
    UsageError
        No job is left.
    """
    jobs = tuple(job for job in workload.jobs if (job.gpus if rigid else job.fewest) <= count)
    if len(jobs) == len(workload.jobs):
        return workload
    left_out = {**workload.left_out, _REASON: len(workload.jobs) - len(jobs)}
    if not jobs:
        raise UsageError(f"no job is left; {left_out_told(left_out, 0)}")
    return replace(workload, jobs=jobs, left_out=left_out)

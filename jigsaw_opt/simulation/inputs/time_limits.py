"""Other time limits for the jobs of a workload, to see what depends on how well users know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import LARGEST, Workload
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.text import nearest

__all__ = ["AS_STATED", "TIME_LIMITS", "with_time_limits"]

AS_STATED = "as stated"
_EXACT = "exact"
_FACTORS: Mapping[str, tuple[int, int]] = {"half": (1, 2), "double": (2, 1)}
TIME_LIMITS = (*_FACTORS, _EXACT)
"""What limits may be instead: half or double of those stated, or for every job as long as it runs alone."""


def with_time_limits(workload: Workload, words: str, performance: Performance) -> Workload:
    """Return a workload with other time limits.

    `workload`: the workload as it was read. Jobs without a limit stay without, unless limits are exact.
    """
    if words not in TIME_LIMITS:
        raise UsageError(
            f"no time limits {words!r}; {nearest(words, TIME_LIMITS)}", code="unknown-value", path="time_limits"
        )
    if words == _EXACT:
        limits = (max(1, performance.alone_us(job)) for job in workload.jobs)
        return _limited(workload, limits)
    if all(job.time_limit_us is None for job in workload.jobs):
        raise UsageError("no job states a time limit", code="empty", path="time_limits")
    more, less = _FACTORS[words]
    stated = (job.time_limit_us for job in workload.jobs)
    return _limited(workload, (None if us is None else min(LARGEST, max(1, us * more // less)) for us in stated))


def _limited(workload: Workload, limits_us: Iterable[int | None]) -> Workload:
    pairs = zip(workload.jobs, limits_us, strict=True)
    return replace(workload, jobs=tuple(replace(job, time_limit_us=limit_us) for job, limit_us in pairs))

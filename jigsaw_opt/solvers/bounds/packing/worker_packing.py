"""Workers as items and GPUs as bins: a worker stays on one GPU with all its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData

__all__ = ["packing_bound"]


def packing_bound(job_data: Sequence[JobData], classes: Sequence[GpuClass], finite: bool) -> int:
    """Least time that some GPU is busy with whole workers, between the earliest release and the last exchange.

    Parameters
    ----------
    job_data
        The jobs.
    classes
        GPUs by type and memory.
    finite
        Whether heads and tails count; around a period they do not.
    """
    placed = [data for data in job_data if data.job_class.blocks]
    best = 0
    for kinds in dict.fromkeys(
        [*(frozenset(data.job_class.blocks) for data in placed), frozenset(range(len(classes)))]
    ):
        inside = [data for data in placed if kinds >= data.job_class.blocks.keys()]
        loads = sorted((load for data in inside for load in _least_loads(data)), reverse=True)
        head, tail = _least_ends(inside) if finite else (0, 0)
        best = max([best, *(head + load + tail for load in _fullest(loads, sum(classes[k].gpus for k in kinds)))])
    return best


def _least_ends(job_data: Sequence[JobData]) -> tuple[int, int]:
    """Least time before the first work of the jobs, and least time after the last."""
    head = min((data.job.release_us for data in job_data), default=0)
    return head, min((data.job_class.tail for data in job_data), default=0)


def _least_loads(data: JobData) -> Iterator[int]:
    """Least time that each worker of a job keeps its GPU busy over all iterations.

    Over several iterations workers may take turns, so each counts only for the least of its levels.
    """
    least = critical.least_levels(data.job)
    for level in least if data.job.iterations == 1 else (least[0],) * len(least):
        yield data.job.iterations * min(t[level - 1] for t in data.job_class.blocks.values() if len(t) >= level)


def _fullest(loads: Sequence[int], gpus: int) -> Iterator[int]:
    """Of the ``k m + g`` largest items in ``m`` bins, some ``g`` bins hold at least ``g (k + 1)`` of them.

    After Haouari and Gharbi, "Fast lifting procedures for the bin packing problem" (2006), for powers of two ``g``.
    """
    sums = [0, *accumulate(loads)]
    bins = 1
    while bins <= gpus:
        for count in range(bins, len(loads) + 1, gpus):
            held = (count - bins) // gpus * bins + bins
            yield ceil_div(sums[count] - sums[count - held], bins)
        bins *= 2

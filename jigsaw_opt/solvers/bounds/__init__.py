"""Combinatorial lower bounds: what every solver starts from, so that even greedy returns a certified gap.

Each bound is a proof in exact arithmetic; ``docs/bounds.md`` has the arguments. None expands iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import gpu_resources
from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import link_resources
from jigsaw_opt.solvers.bounds.combinatorial.single_machine import (
    least_makespan,
    least_period,
    least_weighted_completion,
)
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData, gather_job_data, gpu_classes
from jigsaw_opt.solvers.bounds.packing.worker_packing import packing_bound
from jigsaw_opt.solvers.bounds.relaxation import Bound, CompletionBound, Deadlines
from jigsaw_opt.solvers.bounds.resources import (
    Resource,
    WeightedJob,
)

__all__ = ["Bound", "CompletionBound", "Deadlines", "lower_bound"]


def lower_bound(pieces: Pieces) -> Bound:
    """Best combinatorial lower bound on the objective of an instance.

    Parameters
    ----------
    pieces
        The instance, cut. Where it has no plan, the bound is still a valid number and means nothing.
    """
    classes = gpu_classes(pieces)
    job_data = gather_job_data(pieces, classes)
    resources = [*gpu_resources(job_data, classes), *link_resources(pieces, job_data)]
    if pieces.objective == "weighted_completion":
        bounds = _completion_bounds(job_data, resources)
    else:
        bounds = _length_bounds(pieces, job_data, classes, resources)
    return max(bounds, key=lambda bound: bound.value)


def _completion_bounds(job_data: Sequence[JobData], resources: Sequence[Resource]) -> Iterator[Bound]:
    """Weighted completion: every job on its own, or on one machine as fast as a whole resource."""
    yield Bound(sum(data.job.weight * data.end for data in job_data), "critical paths of all jobs")
    for resource in resources:
        weighted_jobs = [
            WeightedJob(data.job.weight, data.end, demand)
            for data, demand in zip(job_data, resource.demands, strict=True)
        ]
        yield Bound(least_weighted_completion(weighted_jobs, resource.capacity), f"{resource.reason}, in Smith's order")


def _length_bounds(
    pieces: Pieces, job_data: Sequence[JobData], classes: Sequence[GpuClass], resources: Sequence[Resource]
) -> Iterator[Bound]:
    """Makespan and period: the longest job, the fullest resource, the fullest GPU."""
    finite = pieces.horizon == "finite"
    longest = max(job_data, key=lambda data: data.end)
    yield Bound(max(longest.end, 0 if finite else 1), f"critical path of job {longest.job.name}")
    for resource in resources:
        yield Bound(least_makespan(resource) if finite else least_period(resource), resource.reason)
    yield Bound(packing_bound(job_data, classes, finite), "the largest workers, of which some GPU has several")

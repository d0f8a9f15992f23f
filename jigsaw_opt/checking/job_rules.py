"""Rules for some jobs and for the resources that they share, on either horizon (specification: correct-plan)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.checking.depth import depth
from jigsaw_opt.checking.document import contents
from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.lanes import overlaps
from jigsaw_opt.checking.placement import placement
from jigsaw_opt.checking.power import power
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob, task_graph_violations
from jigsaw_opt.checking.timing import timing, wrap
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

__all__ = ["of_jobs"]


def of_jobs(
    jobs: Sequence[CheckedJob | CheckedTaskGraphJob], cluster: Cluster, period_us: int | None
) -> Iterator[Violation]:
    """Check every rule about one job's operations, then the GPUs, links and power caps that the jobs share."""
    for job in jobs:
        if isinstance(job, CheckedTaskGraphJob):
            yield from task_graph_violations(job, cluster, period_us)
            continue
        yield from contents(job)
        yield from placement(job, cluster)
        yield from depth(job)
        yield from timing(job)
        if period_us is not None:
            yield from wrap(job, period_us)
    yield from overlaps(jobs, cluster, period_us)
    yield from power(jobs, cluster, period_us)

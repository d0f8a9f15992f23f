"""Rules for some jobs and the resources that they share, on either horizon (specification: correct-plan, placement)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.checking.depth import depth
from jigsaw_opt.checking.document import contents
from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.power import power
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob, task_graph_violations
from jigsaw_opt.checking.timing import overlaps, timing, wrap
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster


def placement(job: CheckedJob, cluster: Cluster) -> Iterator[Violation]:
    """Check that GPUs exist, differ, and run the model, and servers reach each other (specification: placement)."""
    worker_of: dict[str, int] = {}
    for worker, (gpu, server) in enumerate(zip(job.plan.gpus, job.servers, strict=True)):
        path = f"{job.path}.gpus[{worker}]"
        if server is None:
            yield Violation("placement", path, f"the cluster has no GPU {gpu!r}")
        elif job.durations[worker] is None:
            message = f"GPU {gpu} is a {cluster.servers[server].gpu_type}, which model {job.job.model!r} cannot run on"
            yield Violation("placement", path, message)
        first = worker_of.setdefault(gpu, worker)
        if first != worker:
            yield Violation("placement", path, f"GPU {gpu} also holds worker {first} of the job")
    complete = len(job.servers) == job.job.workers and None not in job.servers
    if complete and job.exchange is None:
        yield Violation("placement", f"{job.path}.gpus", "no route joins all the servers of the job")


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

"""Rules for the GPUs of workers (specification: placement)."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

__all__ = ["placement"]


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

"""Where workers sit, and the memory that they need there (specification: placement, memory)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.cluster import Cluster

__all__ = ["memory", "placement"]


def placement(job: CheckedJob, cluster: Cluster) -> Iterator[Violation]:
    """GPUs that exist, differ, and run the model; servers that reach each other (specification: placement)."""
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


def memory(jobs: Sequence[CheckedJob], cluster: Cluster) -> Iterator[Violation]:
    """State of all workers of a GPU, and the largest of their activations (specification: memory)."""
    state: defaultdict[str, int] = defaultdict(int)
    activations: defaultdict[str, int] = defaultdict(int)
    last_worker: dict[str, tuple[str, int]] = {}
    for job in jobs:
        for worker, (gpu, server) in enumerate(zip(job.plan.gpus, job.servers, strict=True)):
            if server is not None:
                state[gpu] += job.terms.state_bytes
                activations[gpu] = max(activations[gpu], _activation_bytes(job, worker))
                last_worker[gpu] = (f"{job.path}.gpus[{worker}]", server)
    for gpu, (path, server) in last_worker.items():
        need, limit = state[gpu] + activations[gpu], cluster.servers[server].gpu_memory
        if need > limit:
            yield Violation("memory", path, f"the workers on GPU {gpu} need {need} bytes, but it has {limit}")


def _activation_bytes(job: CheckedJob, worker: int) -> int:
    levels = (i.blocks[worker].level for i in job.plan.iterations if worker < len(i.blocks))
    deepest = max((level for level in levels if 1 <= level <= job.terms.depth), default=0)
    return job.terms.activation_bytes[deepest - 1] if deepest else 0

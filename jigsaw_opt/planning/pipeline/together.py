"""A pipeline beside other jobs: one more job of an instance, on the cluster that is there."""

from __future__ import annotations

from jigsaw_opt.documents import add_job
from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_task_graph
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import TaskGraphJob

__all__ = ["add_pipeline"]


def add_pipeline(
    instance: Instance,
    pipeline: PipelineProblem,
    name: str,
    *,
    gpu_type: str | None = None,
    iterations: int = 1,
    weight: int = 1,
) -> Instance:
    """Return the instance with a pipeline as its last job; its solver chooses GPUs and orders of passes.

    What stages send takes links and fabrics of the cluster for as long as its bytes take there. The GPU memory is the
    cluster's as well. An iteration begins on a GPU once it is done with the one before.

    `gpu_type`: the GPUs that its costs are of, and that it may have; None for those of the cluster where all are alike.
    """
    chosen = _gpu_type(instance.cluster, gpu_type)
    there = sum(server.gpus for server in instance.cluster.servers if server.gpu_type == chosen)
    if there < pipeline.layout.gpus:
        raise UsageError(
            f"the pipeline takes {pipeline.layout.gpus} GPUs of type {chosen!r}, and there are {there}",
            code="does-not-fit",
        )
    shape = pipeline_task_graph(pipeline, chosen, _sizes(pipeline, instance.cluster))
    return add_job(instance, TaskGraphJob(name, shape, iterations, weight=weight))


def _gpu_type(cluster: Cluster, wanted: str | None) -> str:
    types = sorted({server.gpu_type for server in cluster.servers})
    if wanted is None and len(types) > 1:
        raise UsageError(
            f"the cluster has GPUs of types {', '.join(types)}: say which one the costs are of",
            code="ambiguous",
            path="gpu_type",
        )
    if wanted is not None and wanted not in types:
        raise UsageError(
            f"the cluster has no GPU of type {wanted!r}, only {', '.join(types)}", code="unknown-name", path="gpu_type"
        )
    return wanted or types[0]


def _sizes(pipeline: PipelineProblem, cluster: Cluster) -> tuple[int, ...]:
    """Return bytes between neighbours; a time is a size only where each byte takes a microsecond."""
    costs = pipeline.costs
    if costs.transfer_bytes or not any(costs.transfer_us):
        return costs.transfer_bytes
    rates = {(server.fabric_bandwidth, server.fabric_latency_us) for server in cluster.servers}
    rates |= {(link.bandwidth, link.latency_us) for link in cluster.links}
    if rates != {(10**6, 0)}:
        raise UsageError(
            "how long a transfer takes depends on the cluster it is on; give its bytes in place of its microseconds",
            code="not-together",
            path="transfer_us",
        )
    return costs.transfer_us

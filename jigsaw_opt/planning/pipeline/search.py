"""The best schedule that a solver finds for a pipeline, alone or as one more job of an instance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jigsaw_opt.documents import add_job
from jigsaw_opt.errors import UsageError, not_together
from jigsaw_opt.planning.pipeline.list_schedule import makespan_us
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import Orders, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import plan_of_orders, timetable_of_orders
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, peak_bytes, pipeline_instance, pipeline_task_graph
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result
from jigsaw_opt.solvers.solve import solve


def search_schedule(
    pipeline: PipelineProblem,
    name: str,
    horizon: Horizon,
    options: Options,
    report: Callable[[Event], None] | None = None,
    first: Sequence[Orders] = (),
) -> tuple[Instance, Result]:
    """Solve the instance of a pipeline with `auto`, from the best named schedule that fits its layout and memory.

    The instance, and what `auto` says of it; never worse than a named schedule, or than `first`.
    """
    instance, options = pipeline_instance(pipeline, name, horizon), replace(options, listed=True)

    def length_us(orders: Orders) -> int:
        period = None if horizon == "finite" else timetable_of_orders(pipeline, instance, orders).period_us
        return makespan_us(pipeline, orders) if period is None else period

    best = min((*first, *fitting(pipeline).values()), key=length_us, default=None)
    start = None if best is None else plan_of_orders(pipeline, best, name, horizon, "first").plan
    return instance, solve(instance, "auto", options, start=start, on_event=report)


def fitting(pipeline: PipelineProblem) -> dict[str, Orders]:
    """Return by name the orders of the schedules for a pipeline's layout that its memory suffices for."""
    layout, found = pipeline.layout, {}
    for name in names_of(layout):
        orders = ORDERS[name](layout)
        if max(peak_bytes(pipeline, orders)) <= pipeline.room:
            found[name] = orders
    return found


def names_of(layout: PipelineLayout) -> list[str]:
    """Return the names of the schedules for a layout."""
    if layout.stages == layout.gpus:
        return ["gpipe", "1f1b", *(["zb-h1", "zb-h2"] if layout.split else [])]
    there = tuple(range(layout.gpus))
    if layout.gpu_of == there + there[::-1]:
        return ["v-half"]
    wrapped = layout.gpu_of == there * layout.chunks
    return ["interleaved"] if wrapped and layout.micro_batches % layout.gpus == 0 else []


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
        told = f"the pipeline takes {pipeline.layout.gpus} GPUs of type {chosen!r}, and there are {there}"
        raise UsageError(told, code="does-not-fit")
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
        raise not_together(
            "transfer_us",
            "how long a transfer takes depends on the cluster it is on; give its bytes in place of its microseconds",
        )
    return costs.transfer_us

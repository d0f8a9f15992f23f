"""What bounds ask of jobs that may move (specification: moves)."""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job
from jigsaw_opt.problem.operations import OperationGraph, Operations

__all__ = ["rounded_for_moves"]


def rounded_for_moves(operations: Operations) -> Operations:
    """Return the instance with the least total of levels of each job that may move rounded down, not up.

    Each part of the job on other GPUs keeps the mean depth by itself. A bound counts all iterations on the same GPUs,
    and there what is rounded up may cost more than where the parts round up.
    """
    moving = {job.name: job for job in operations.instance.moving_jobs}
    if not moving:
        return operations
    jobs = tuple(_rounded(operations.instance, graph, moving.get(graph.name)) for graph in operations.jobs)
    rounded = replace(operations, jobs=jobs)
    rounded.__dict__["routes"] = operations.routes  # The same cluster: its routes stay known.
    return rounded


def _rounded(instance: Instance, graph: OperationGraph, job: object) -> OperationGraph:
    if not isinstance(job, Job) or not isinstance(job.depth, FreeDepth):
        return graph
    most = instance.models[job.model].depth * job.workers * job.iterations
    least = min(graph.rule.min_total, int(job.depth.mean(job.workers) * most))
    return replace(graph, rule=replace(graph.rule, min_total=least))

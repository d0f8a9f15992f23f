"""The work of task-graph jobs, and of data-parallel jobs beside them: on all GPUs, and in watts under a power cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import accumulate

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.activities.slot_loads import load_of_gpus, shared_work, task_graph_data, work_of
from jigsaw_opt.solvers.bounds.combinatorial.energy import priced_us, watts_us
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations = context.operations
    for cap in operations.cluster.capacities:
        capped = frozenset(cap.servers)
        works = [(data.job.name, data.job.release_us, watts_us(context, data, capped)) for data in context.job_data]
        for graph in operations.task_graphs:
            works.append((graph.job.name, graph.job.release_us, _watts_us(graph, operations.cluster.servers, capped)))
        works = sorted((each for each in works if each[2]), key=lambda each: (each[1], each[2], each[0]), reverse=True)
        # Jobs that are released later may have enough work by themselves; no period waits for a release.
        sums = accumulate(work for *_, work in works)
        values = [head + ceil_div(work, cap.watts) for (_, head, _), work in zip(works, sums, strict=True)]
        if values:
            asking = works[: values.index(max(values)) + 1]
            yield shared_work(asking, cap.watts, f"watts times time under power cap {cap.name!r}", cap)


def _watts_us(graph: CompiledTaskGraph, servers: Sequence[Server], capped: Set[str]) -> int:
    """Return the least watts times microseconds of all blocks, each on every slot where it draws least."""
    places = {(server.gpu_type, server.name in capped) for server in servers}
    once = 0
    for block, slots in zip(graph.shape.blocks, graph.takes_part, strict=False):
        drawn = {kind: (block.power_w or {}).get(kind, 0) * time for kind, time in block.duration_us.items()}
        for slot in slots:
            own = (drawn[kind] if inside else 0 for kind, inside in places if kind in graph.gpu_types[slot])
            once += min(own, default=0)
    return graph.job.iterations * once


def _relaxation(name: str, mixed: bool) -> Relaxation:
    return Relaxation(
        name,
        _bounds,
        frozenset({"makespan", "period"}),
        instant=True,
        fits=lambda operations: bool(operations.cluster.capacities),
        task_graphs=not mixed,
        mixed=mixed,
        moves=True,
    )


TASK_POWER, MIXED_POWER = _relaxation("task_power", False), _relaxation("mixed_power", True)
"""The relaxations registered as ``task_power`` and ``mixed_power``."""


def _mixed_bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    prices = [1] * len(context.gpu_classes)
    # Each level counts on the type that takes least for it, even if no single type is the best for all levels.
    works = [(each.job.name, each.job.release_us, priced_us(each, prices)) for each in context.job_data]
    works += [work_of(each) for each in context.shared(task_graph_data)]
    yield load_of_gpus(context.operations.cluster, works)


MIXED_LOADS = Relaxation(
    "mixed_loads", _mixed_bounds, objectives=frozenset({"makespan", "period"}), instant=True, mixed=True, moves=True
)
"""Work of jobs of both kinds over all GPUs."""

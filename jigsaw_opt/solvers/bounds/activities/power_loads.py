"""The work of task-graph jobs, and of data-parallel jobs beside them: on all GPUs, and in watts under a power cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import accumulate

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.activities.slot_loads import load_of_gpus, task_graph_data, work_of
from jigsaw_opt.solvers.bounds.combinatorial.energy import priced_us, watts_us
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations = context.operations
    for cap in operations.cluster.capacities:
        capped = frozenset(cap.servers)
        demands = [(data.job.release_us, watts_us(context, data, capped), data.job.name) for data in context.job_data]
        for graph in operations.task_graphs:
            work = _watts_us(graph, operations.cluster.servers, capped)
            demands.append((graph.job.release_us, work, graph.job.name))
        demands = sorted((demand for demand in demands if demand[1]), reverse=True)
        # Jobs that are released later may have enough work by themselves; no period waits for a release.
        sums = accumulate(work for _, work, _ in demands)
        values = [head + ceil_div(work, cap.watts) for (head, _, _), work in zip(demands, sums, strict=True)]
        if values:
            value = max(values)
            asking = demands[: values.index(value) + 1]
            head, works = asking[-1][0], added(work for _, work, _ in asking)
            shared = {name: work for _, work, name in asking}
            argument = {"kind": "shared work", "cap": cap.name, "head": head, "jobs": shared}
            terms = (Term("head", head), *(Term("work", work, "W * us", (name,)) for _, work, name in asking))
            told, names = f"watts times time under power cap {cap.name!r}", tuple(name for _, _, name in asking)
            arithmetic = f"{head} + ceil(({works}) / {cap.watts}) = {value}"
            yield Bound(value, Proof(told, arithmetic, terms, names, cap.servers, argument=argument))


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

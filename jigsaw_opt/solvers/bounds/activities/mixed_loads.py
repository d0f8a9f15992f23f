"""The work of task-graph and data-parallel jobs together, shared out among all GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.critical import least_work_us
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation

__all__ = ["MIXED_LOADS"]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations = context.operations
    terms = tuple(_works(operations))
    works, gpus = [term.amount for term in terms], operations.cluster.gpu_count
    value = ceil_div(sum(works), gpus)
    arithmetic = f"ceil(({added(works)}) / {gpus}) = {value}"
    yield Bound(
        value, Proof("the work of all blocks shared out among all GPUs", arithmetic, (*terms, Term("GPUs", gpus, "")))
    )


def _works(operations: Operations) -> Iterator[Term]:
    """Yield the least GPU time of every job, with each block on the GPUs that take least for it."""
    for job in checking_deadline(operations.jobs):
        tables = job.blocks[0].duration_us
        # Each level counts on the type that takes least for it, even if no single type is the best for all levels.
        costs = [min(table[level] for table in tables.values()) for level in range(job.levels)] if tables else [0]
        yield Term("work", least_work_us(job, costs) if tables else 0, jobs=(job.name,))
    for graph in checking_deadline(operations.task_graphs):
        data = TaskGraphData(graph, operations.cluster)
        once = sum(
            length * len(slots) for length, slots in zip(data.least_us, graph.takes_part[: graph.blocks], strict=False)
        )
        yield Term("work", graph.job.iterations * once, jobs=(graph.job.name,))


MIXED_LOADS = Relaxation(
    "mixed_loads", _bounds, objectives=frozenset({"makespan", "period"}), instant=True, mixed=True, moves=True
)
"""Work of jobs of both kinds over all GPUs."""

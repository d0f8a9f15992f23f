"""Energy of what many jobs draw at once: watts under a power cap.

At every moment the running blocks draw at most the watts of a cap. So what all jobs draw, times how long, is at most
those watts times the length of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand


def _power_bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    for cap in context.operations.instance.cluster.capacities:
        demands = [
            ResourceDemand(data.job.release_us, work, data.job_class.tail, 0)
            if (work := watts_us(context, data, frozenset(cap.servers)))
            else None
            for data in context.job_data
        ]
        resource = Resource(cap.watts, demands, f"watts times time under power cap {cap.name!r}", cap.servers)
        for bound in resource_bounds(context, [resource] if any(demands) else [], known):
            known = bound.value
            yield bound


def watts_us(context: BoundContext, data: JobData, capped: Set[str]) -> int:
    """Return the least watts times microseconds of all blocks of a job under a cap, each where it draws least.

    It is 0 where some GPU that the job may use is not under the cap.
    """
    job, blocks, servers = data.job, data.job_class.blocks, context.operations.cluster.servers
    if not blocks or any(servers[s].name not in capped for s in data.job_class.gpus):
        return 0
    watts = {k: job.power_w.get(context.gpu_classes[k].gpu_type, 0) for k in blocks}
    # With the level fewer GPUs have the memory and none is faster, so that the cost never falls.
    levels = range(1, job.levels + 1)
    cost = [min(watts[k] * times[d - 1] for k, times in blocks.items() if len(times) >= d) for d in levels]
    return critical.least_work_us(job, cost)


POWER_ENERGY = Relaxation(
    "power_energy",
    _power_bounds,
    frozenset({"makespan", "period"}),
    instant=True,
    fits=lambda operations: bool(operations.instance.cluster.capacities),
    moves=True,
)
"""The relaxation registered as ``power_energy``."""

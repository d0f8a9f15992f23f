"""Energy of what many jobs draw or hold at once: watts under a power cap, and units of what is scarce.

At every moment the running blocks draw at most the watts of a cap, and jobs hold at most the units that there are. So
what all jobs draw or hold, times how long, is at most those watts or units times the length of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand


def _power_resources(context: BoundContext) -> Iterator[Resource]:
    for cap in context.operations.instance.cluster.capacities:
        demands = [
            ResourceDemand(data.job.release_us, work, data.job_class.tail, 0)
            if (work := watts_us(context, data, frozenset(cap.servers)))
            else None
            for data in context.job_data
        ]
        if any(demands):
            argument = {"kind": "power cap", "cap": cap.name}
            reason = f"watts times time under power cap {cap.name!r}"
            yield Resource(cap.watts, demands, reason, argument, cap.servers)


def watts_us(context: BoundContext, data: JobData, capped: Set[str]) -> int:
    """Return the least watts times microseconds of all blocks of a job under a cap, each where it draws least.

    It is 0 where some GPU that the job may use is not under the cap.
    """
    servers, power_w = context.operations.cluster.servers, data.job.power_w
    if any(servers[s].name not in capped for s in data.job_class.gpus):
        return 0
    return priced_us(data, [power_w.get(kind.gpu_type, 0) for kind in context.gpu_classes])


def priced_us(data: JobData, prices: Sequence[int]) -> int:
    """Return the least price of all blocks of a job, given that of a microsecond by class of GPU."""
    blocks = data.job_class.blocks
    if not blocks:
        return 0
    # With the level fewer GPUs have the memory and none is faster, so that the cost never falls.
    levels = range(1, data.job.levels + 1)
    cost = [min(prices[k] * times[d - 1] for k, times in blocks.items() if len(times) >= d) for d in levels]
    return critical.least_work_us(data.job, cost)


def _held_resources(context: BoundContext) -> Iterator[Resource]:
    jobs = {job.name: job for job in context.operations.instance.data_parallel_jobs}
    for licence, units in (context.operations.instance.cluster.licences or {}).items():
        demands = list[ResourceDemand | None]()
        for data in context.job_data:
            job, span = jobs[data.job.name], data.completion - data.job.release_us
            # A job that pauses holds nothing meanwhile. What is held until the end has its middle half of the span
            # before that, and twice of this counts.
            stays = job.restart_us is None and licence in (job.licences or ())
            demands.append(ResourceDemand(job.release_us, span, 0, span**2) if stays else None)
        if units and any(demands):
            argument = {"kind": "licence", "licence": licence}
            yield Resource(units, demands, f"units times time of licence {licence!r}", argument)


POWER_ENERGY = Relaxation(
    "power_energy",
    lambda context, known, budget: resource_bounds(context, _power_resources(context), known),
    frozenset({"makespan", "period"}),
    instant=True,
    fits=lambda operations: bool(operations.instance.cluster.capacities),
    moves=True,
)
"""The relaxation registered as ``power_energy``."""
HELD_UNITS = Relaxation(
    "held_units",
    lambda context, known, budget: resource_bounds(context, _held_resources(context), known),
    frozenset({"makespan", "weighted_completion"}),
    instant=True,
    fits=lambda operations: bool(operations.instance.scarce_capacities),
    moves=True,
)
"""The relaxation registered as ``held_units``."""

"""Burst-parallel plans: how many GPUs each layer of a job gets (DeepPool; Park et al., MLSys'22)."""

from jigsaw_opt.planning.burst.exact import budget_plan, exact_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.planning.burst.plan import BurstPlan, widest_plan
from jigsaw_opt.planning.burst.profiled import BurstSetting, measured_costs, profiled_costs

__all__ = [
    "BurstPlan",
    "BurstSetting",
    "budget_plan",
    "burst_instance",
    "exact_plan",
    "measured_costs",
    "profiled_costs",
    "widest_plan",
]

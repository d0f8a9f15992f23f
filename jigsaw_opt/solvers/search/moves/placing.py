"""Placements made anew, for the moves that begin with one."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer, random_order

__all__ = ["Placing"]

_LEAST_BALANCE, _MOST_BALANCED_SLOTS = 50, 100_000
_BALANCE_STEPS_OF_JOB, _LEAST_BALANCE_OF_JOB = 40, 10
_STEPS_A_LOOK = 50
_WORK_OF_BALANCING = 6e-5
"""Deterministic seconds that a step of balancing counts as."""
_TARGETS = (1.0, 1.03, 1.08)
_BALANCE_HEATS = (0.1, 1.0)
_LINK_WEIGHTS = (1.0, 10.0, 50.0)
_BUILDS = 5
"""Orders in which it is tried to place all jobs, for memory may leave the last ones no room."""


class Placing:
    """Makes placements for one search.

    Parameters
    ----------
    context
        The search.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.rng = context, context.rng
        self.construction_work = len(context.pieces.jobs) * _WORK_OF_BALANCING

    def balancer(self, target: float | None = None) -> LoadBalancer:
        """An empty placement and what its loads should keep to: a least load times a factor, drawn where not given.

        The least load is the bound, or for weighted ends the mean load of a GPU.
        """
        context = self.context
        target = self.rng.choice(_TARGETS) if target is None else target
        least = context.control.bound
        if context.pieces.objective == "weighted_completion":
            load = sum(max(demand.slot_us.values()) * demand.job.slots for demand in context.data.demands)
            least = load // len(context.data.layout.gpus)
        return LoadBalancer(context.data, self.rng, max(1, round(target * least)), self.rng.choice(_LINK_WEIGHTS))

    def construct(self, balancer: LoadBalancer) -> bool:
        """Place all jobs in some order; says whether all found room."""
        self.context.budget.spend(self.construction_work)
        return balancer.build(random_order(self.context.data.demands, self.rng))

    def balanced(self) -> LoadBalancer | None:
        """A placement made anew and balanced; None where no order leaves room for all jobs."""
        balancer = self.balancer()
        if not any(self.construct(balancer) for _ in range(_BUILDS)):
            return None
        steps = self._steps()
        temperature = self.rng.choice(_BALANCE_HEATS)
        for done in range(0, steps, _STEPS_A_LOOK):
            balancer.anneal(_STEPS_A_LOOK, temperature * (1 - done / steps) ** 2)
            if self.context.budget.spend(_STEPS_A_LOOK * _WORK_OF_BALANCING):
                break
        self.context.balanced = balancer.placement.resolved()
        return balancer

    def resolved(self, spots: Sequence[PlacedJob]) -> Sequence[PlacedJob] | None:
        """A whole placement with its levels worked out."""
        balancer = self.balancer(1.0)
        balancer.adopt(spots)
        return balancer.placement.resolved()

    def _steps(self) -> int:
        """Steps of balancing: by the number of jobs, fewer where jobs are wide and a step takes long."""
        jobs = len(self.context.pieces.jobs)
        slots = sum(job.slots for job in self.context.pieces.jobs) / jobs
        most = max(round(_MOST_BALANCED_SLOTS / slots), _LEAST_BALANCE_OF_JOB * jobs)
        return min(max(_LEAST_BALANCE, _BALANCE_STEPS_OF_JOB * jobs), most)

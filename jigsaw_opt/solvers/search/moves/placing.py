"""Placements made anew, for the moves that begin with one."""

from __future__ import annotations

from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer, random_order

__all__ = ["Placing"]

_PLACED_WORKER, _BALANCING_STEP = 2e-5, 6e-5
"""Deterministic seconds that placing a worker and a step of balancing count as, about what Python takes for them."""
_TARGETS = (1.0, 1.03, 1.08)
"""Target loads, as multiples of the least load; one is drawn. Where the least load cannot be reached, a target a little
above it spreads what is too much, and leaves the other loads free."""
_LINK_WEIGHTS = (1.0, 10.0, 50.0)
"""Prices of a link's time; one is drawn, for how much links matter beside GPUs differs between instances."""
_ORDERS = 5
"""Orders in which it is tried to find room for all jobs. Where memory is so tight that five fail, most others do."""
_MOST_WORKER_STEPS = 100_000
"""Steps of balancing times the mean width of a job, at most: with thousands of jobs, one placement would take all of
the time."""
_STRETCH = 50
"""Steps between two looks at the limits: some milliseconds."""


class Placing:
    """Makes placements for one search."""

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.load_balancing
        workers = sum(job.slots for job in context.operations.jobs)
        self.construction_work = workers * _PLACED_WORKER

    def balancer(self, target: float | None = None) -> LoadBalancer:
        """Return an empty placement with a target for its loads: a least load times a factor, random where not given.

        The least load is the bound, or for weighted ends the mean load of a GPU.
        """
        context = self.context
        target = self.rng.choice(_TARGETS) if target is None else target
        least = context.solve_state.bound
        if context.operations.objective == "weighted_completion":
            load = sum(max(demand.slot_us.values()) * demand.job.slots for demand in context.data.demands)
            least = load // len(context.data.layout.gpus)
        return LoadBalancer(context.data, self.rng, max(1, round(target * least)), self.rng.choice(_LINK_WEIGHTS))

    def construct(self, balancer: LoadBalancer) -> bool:
        """Place all jobs in some order; return whether all found room."""
        self.context.budget.spend(self.construction_work)
        return balancer.build(random_order(self.context.data.demands, self.rng))

    def balanced(self) -> LoadBalancer | None:
        """Return a new, balanced placement; None where no order leaves room for all jobs."""
        balancer = self.balancer()
        if not any(self.construct(balancer) for _ in range(_ORDERS)):
            return None
        steps = self._steps()
        temperature = self.rng.choice(self.params.temperatures)
        for done in range(0, steps, _STRETCH):
            # Each stretch falls to 0 and the next begins a little cooler: one fall over all of them is no better.
            balancer.anneal(_STRETCH, temperature * (1 - done / steps) ** 2)
            if self.context.budget.spend(_STRETCH * _BALANCING_STEP):
                break
        return balancer

    def _steps(self) -> int:
        """Return the steps of balancing: by the number of jobs, fewer where jobs are wide and a step takes long."""
        jobs = len(self.context.operations.jobs)
        workers = sum(job.slots for job in self.context.operations.jobs)
        return max(1, min(self.params.steps_per_job * jobs, _MOST_WORKER_STEPS * jobs // workers))

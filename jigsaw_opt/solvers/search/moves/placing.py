"""Placements made anew, for the moves that begin with one."""

from __future__ import annotations

from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer, random_order

__all__ = ["Placing"]


class Placing:
    """Makes placements for one search.

    Parameters
    ----------
    context
        The search.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.load_balancing
        workers = sum(job.slots for job in context.operations.jobs)
        self.construction_work = workers * context.params.prices.placed_worker

    def balancer(self, target: float | None = None) -> LoadBalancer:
        """Return an empty placement with a target for its loads: a least load times a factor, random where not given.

        The least load is the bound, or for weighted ends the mean load of a GPU.
        """
        context = self.context
        target = self.rng.choice(self.params.targets) if target is None else target
        least = context.solve_state.bound
        if context.operations.objective == "weighted_completion":
            load = sum(max(demand.slot_us.values()) * demand.job.slots for demand in context.data.demands)
            least = load // len(context.data.layout.gpus)
        return LoadBalancer(
            context.data, self.rng, max(1, round(target * least)), self.rng.choice(self.params.link_weights)
        )

    def construct(self, balancer: LoadBalancer) -> bool:
        """Place all jobs in some order; return whether all found room."""
        self.context.budget.spend(self.construction_work)
        return balancer.build(random_order(self.context.data.demands, self.rng))

    def balanced(self) -> LoadBalancer | None:
        """Return a new, balanced placement; None where no order leaves room for all jobs."""
        balancer = self.balancer()
        if not any(self.construct(balancer) for _ in range(self.params.constructions)):
            return None
        steps = self._steps()
        temperature = self.rng.choice(self.params.temperatures)
        for done in range(0, steps, self.params.steps_between_looks):
            # Each stretch falls to 0 and the next begins a little cooler: one fall over all of them is no better.
            balancer.anneal(self.params.steps_between_looks, temperature * (1 - done / steps) ** 2)
            if self.context.budget.spend(self.params.steps_between_looks * self.context.params.prices.balancing_step):
                break
        return balancer

    def _steps(self) -> int:
        """Return the steps of balancing: by the number of jobs, fewer where jobs are wide and a step takes long."""
        jobs = len(self.context.operations.jobs)
        workers = sum(job.slots for job in self.context.operations.jobs)
        return max(1, min(self.params.steps_per_job * jobs, self.params.most_worker_steps * jobs // workers))

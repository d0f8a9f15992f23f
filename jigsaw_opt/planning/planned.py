"""What every planner returns: one kind of result for partitions, pipelines, bursts and fillings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import Proof

Details = TypeVar("Details", covariant=True)


@dataclass(frozen=True, slots=True)
class Planned(Generic[Details]):
    """A job planned from its profile: the instance that it makes, and a plan of that.

    Attributes
    ----------
    instance
        The instance, with the job as it is planned.
    plan
        A plan of it that `check` accepts; None where no limit left time for one.
    bound
        No plan of what the planner chooses from is better, in microseconds.
    proof
        Why the bound holds.
    details
        What is particular to the planner, such as where stages begin.
    """

    instance: Instance
    plan: Plan | None
    bound: int
    proof: Proof
    details: Details

    @property
    def objective(self) -> int | None:
        """Return the objective of the plan, in microseconds; None without one."""
        return None if self.plan is None else self.plan.objective

    @property
    def gap(self) -> float | None:
        """Return how far the plan may be from the best, as a share of its objective; None without a plan."""
        if self.plan is None:
            return None
        return (self.plan.objective - self.bound) / self.plan.objective if self.plan.objective else 0.0

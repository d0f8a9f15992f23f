"""What comes of making a phased plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from jigsaw_opt.problem.phased_plan import PhasedPlan
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.result import Conflict, Status, relative_gap

__all__ = ["PhasedResult"]


@dataclass(frozen=True, slots=True)
class PhasedResult:
    """The outcome of making a phased plan.

    Parameters
    ----------
    status
        How much is known.
    bound, proof
        A proven lower bound, and what proves it.
    plan
        The plan, checked, or None.
    conflicts
        Why there is no plan, where that is proven.
    seconds, seed
        Wall-clock time and seed.
    """

    status: Status
    bound: int
    proof: Proof = field(default_factory=Proof)
    plan: PhasedPlan | None = None
    conflicts: tuple[Conflict, ...] = ()
    seconds: float = 0.0
    seed: int = 0

    @property
    def objective(self) -> int | None:
        """Objective of the plan, or None without one."""
        return None if self.plan is None else self.plan.objective

    @property
    def gap(self) -> float | None:
        """Relative gap, or None without a plan."""
        return None if self.objective is None else relative_gap(self.objective, self.bound)

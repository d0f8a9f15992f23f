"""Lower bounds: relaxations that yield a value no plan beats, with its proof. ``docs/bounds.md`` has the arguments."""

from __future__ import annotations

from jigsaw_opt.solvers.bounds.driver import instant_bounds, lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.registry import names
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Deadlines, Relaxation

__all__ = [
    "Bound",
    "BoundBudget",
    "BoundContext",
    "Deadlines",
    "Proof",
    "Relaxation",
    "Term",
    "instant_bounds",
    "lower_bound",
    "names",
    "stronger_bounds",
]

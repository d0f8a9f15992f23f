"""Plans of long jobs as phases that repeat; see ``docs/phased.md``."""

from jigsaw_opt.solvers.phased.either import is_listed_first, not_taken, solve_any, solve_any_valid
from jigsaw_opt.solvers.phased.resolving import resolve_phased
from jigsaw_opt.solvers.phased.solver import is_long, solve_phased

__all__ = [
    "is_listed_first",
    "is_long",
    "not_taken",
    "resolve_phased",
    "solve_any",
    "solve_any_valid",
    "solve_phased",
]

"""Plans of long jobs as phases that repeat; see ``docs/phased.md``."""

from jigsaw_opt.solvers.phased.either import is_listed_first, solve_either, solve_from_phased
from jigsaw_opt.solvers.phased.resolving import resolve_phased
from jigsaw_opt.solvers.phased.solver import PHASED, is_long, solve_phased

__all__ = [
    "PHASED",
    "is_listed_first",
    "is_long",
    "resolve_phased",
    "solve_either",
    "solve_from_phased",
    "solve_phased",
]

"""Plans of long jobs as phases that repeat; see ``docs/phased.md``."""

from jigsaw_opt.solvers.phased.resolving import resolve_phased
from jigsaw_opt.solvers.phased.result import PhasedResult
from jigsaw_opt.solvers.phased.solver import is_long, solve_phased

__all__ = ["PhasedResult", "is_long", "resolve_phased", "solve_phased"]

"""Plans of long jobs as phases that repeat; see ``docs/phased.md``."""

from jigsaw_opt.solvers.phased.solver import PHASED

__all__ = ["PHASED"]

"""`search`: the anytime solver of every size: balancing, annealing over list schedules, CP-SAT on parts of the plan."""

from jigsaw_opt.solvers.search.solver import SEARCH, Search

__all__ = ["SEARCH", "Search"]

"""`greedy`: list scheduling that chooses placement, levels and order; needs no engine and scales almost linearly."""

from jigsaw_opt.solvers.greedy.heuristic import greedy_timetable
from jigsaw_opt.solvers.greedy.solver import GREEDY, Greedy, offer_greedy

__all__ = ["GREEDY", "Greedy", "greedy_timetable", "offer_greedy"]

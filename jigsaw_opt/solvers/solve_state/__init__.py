"""What a solve is asked, and its state: what every method receives."""

from jigsaw_opt.solvers.solve_state.request import Condition, Opening, Request, Solver
from jigsaw_opt.solvers.solve_state.state import SolveState

__all__ = ["Condition", "Opening", "Request", "SolveState", "Solver"]

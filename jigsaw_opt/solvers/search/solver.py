"""The solver object of the anytime search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.solvers.engines.cpsat import OrtoolsSolver
from jigsaw_opt.solvers.greedy.heuristic import require_size
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves import Move
from jigsaw_opt.solvers.solve_state import SolveState


@dataclass(frozen=True, slots=True)
class Search(OrtoolsSolver):
    """Anytime search: adaptive large neighbourhood search over placements, list schedules, sequences and CP-SAT models.

    Parameters
    ----------
    moves
        Classes of moves beside the registered ones.
    """

    name: str = "search"
    display_name: str = "anytime search: annealing and CP-SAT on parts of the plan; any size, both horizons"
    moves: tuple[type[Move], ...] = ()

    memory_in_time: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = (*LIMITS, "params")

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks than a plan is written for.
        """
        require_size(solve_state.operations)
        return solve_state.conclude(Driver(solve_state, moves=self.moves).run, engines=["ortools"])


SEARCH = Search()
"""The solver registered as ``search``."""

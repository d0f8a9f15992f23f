"""The solver object of the anytime search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.solvers.greedy.heuristic import require_size
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves import Move
from jigsaw_opt.solvers.search.side_searches import SideSearches
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import OrtoolsSolver


@dataclass(frozen=True, slots=True)
class Search(OrtoolsSolver):
    """Anytime search: adaptive large neighbourhood search over placements, list schedules, sequences and CP-SAT models.

    Parameters
    ----------
    moves
        Classes of moves beside the registered ones, made by the first of several searches.
    """

    name: str = "search"
    display_name: str = "anytime search: annealing and CP-SAT on parts of the plan; any size, both horizons"
    moves: tuple[type[Move], ...] = ()

    takes: ClassVar[tuple[str, ...]] = (*LIMITS, "params", "ray")

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks than a plan is written for.
        """
        require_size(solve_state.operations)
        return solve_state.conclude(lambda: searched(solve_state, self.moves), engines=["ortools"])


def searched(
    solve_state: SolveState, moves: Sequence[type[Move]] = (), held: Mapping[int, Sequence[int]] | None = None
) -> StoppedBy:
    """Search with every thread; return the reason to stop.

    `moves`: classes of moves beside the registered ones, made by the first of several searches. `held`: GPUs of the
    jobs that stay there, as `Layout` has them.
    """
    search = Driver(solve_state, moves=moves, held=held)
    with SideSearches(solve_state, search.begun, held=held) as others:
        others.grow(solve_state.options.threads - 1)
        reason = search.run()
        others.wait()
    return reason


SEARCH = Search()
"""The solver registered as ``search``."""

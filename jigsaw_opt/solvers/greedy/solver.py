"""The solver object of the greedy heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.activities.current import Offer
from jigsaw_opt.solvers.greedy.heuristic import require_size, timetables
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

__all__ = ["GREEDY", "Greedy", "offer_greedy"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """List scheduling from a balanced placement; the gap is certified by the lower bound."""

    name: str = "greedy"
    display_name: str = "list scheduling; any size, no engine needed; finite and cyclic horizon"

    task_graphs: ClassVar[bool] = True
    guarantees: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = (*LIMITS, "condition")
    route_policies: ClassVar[bool] = True
    memory_in_time: ClassVar[bool] = True
    power_caps: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        """Return None: it needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Return None: it takes jobs of both kinds, on both horizons."""
        return None

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks and transfers than `MOST_OPERATIONS`.
        """
        require_size(solve_state.operations)

        def run() -> StoppedBy | None:
            offer_greedy(solve_state, solve_state.operations, solve_state.options.seed)
            return solve_state.reason()

        return solve_state.conclude(run)


def offer_greedy(solve_state: SolveState, operations: Operations, seed: int, offer: Offer | None = None) -> bool:
    """Offer every better timetable of the heuristic as soon as it is there, until there is a reason to stop.

    Parameters
    ----------
    solve_state
        Says when to stop.
    operations
        The compiled instance.
    seed
        Of the heuristic.
    offer
        Receives them; `SolveState.offer` where None.

    Returns
    -------
    bool
        Whether there was any.
    """
    found, offer = False, offer or solve_state.offer
    for timetable in timetables(operations, seed):
        if timetable is not None:
            found = True
            offer(timetable)
        if solve_state.reason() is not None:
            break
    return found


GREEDY = Greedy()
"""The solver registered as ``greedy``."""

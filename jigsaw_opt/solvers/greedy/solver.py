"""The solver object of the greedy heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.activities.orders.current import Offer
from jigsaw_opt.solvers.greedy.heuristic import require_size, timetables
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import GeneralSolver

_WORK_OF_OPERATION = 1e-6
"""Units of the limit on work that a block or transfer of a schedule counts as."""


@dataclass(frozen=True, slots=True)
class Greedy(GeneralSolver):
    """List scheduling from a balanced placement; the lower bound proves the gap."""

    name: str = "greedy"
    display_name: str = "list scheduling; any size, no engine needed; finite and cyclic horizon"

    takes: ClassVar[tuple[str, ...]] = LIMITS

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks and transfers than `MOST_OPERATIONS`.
        """
        require_size(solve_state.operations)

        def run() -> StoppedBy | None:
            options = solve_state.options
            work = inf if options.work_limit is None else options.work_limit
            return _offered(solve_state, solve_state.operations, options.seed, solve_state.offer, work)[1]

        return solve_state.conclude(run)


def offer_greedy(solve_state: SolveState, operations: Operations, seed: int, offer: Offer | None = None) -> bool:
    """Offer every better timetable of the heuristic as soon as it is there, until there is a reason to stop."""
    return _offered(solve_state, operations, seed, offer or solve_state.offer, inf)[0]


def _offered(
    solve_state: SolveState, operations: Operations, seed: int, offer: Offer, most_work: float
) -> tuple[bool, StoppedBy | None]:
    """Offer every better timetable within a limit of work; return whether there was any, and what ended it early.

    The first plan is made whatever its work.
    """
    found, work, size = False, 0.0, operations.blocks + operations.transfers
    for timetable in timetables(operations, seed):
        work += size * _WORK_OF_OPERATION
        if timetable is not None:
            found = True
            offer(timetable)
        reason = solve_state.reason() or (StoppedBy.TIME if found and work >= most_work else None)
        if reason is not None:
            return found, reason
    return found, None


GREEDY = Greedy()
"""The solver registered as ``greedy``."""

"""The solver object of the greedy heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.activities.current import Offer
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.heuristic import require_size, timetables
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result, StoppedBy

__all__ = ["GREEDY", "Greedy", "offer_greedy"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """List scheduling from a balanced placement; the gap is certified by the lower bound."""

    name: str = "greedy"
    display_name: str = "list scheduling; any size, no engine needed; finite and cyclic horizon"

    shapes: ClassVar[bool] = True
    promises: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = (*LIMITS, "condition")
    route_policies: ClassVar[bool] = True
    power_caps: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        """Never: it needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Never: it takes jobs of both kinds, on both horizons."""
        return None

    def run(self, control: Control) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks and transfers than `MOST_OPERATIONS`.
        """
        require_size(control.operations)

        def run() -> StoppedBy | None:
            offer_greedy(control, control.operations, control.options.seed)
            return control.reason()

        return control.conclude(run)


def offer_greedy(control: Control, operations: Operations, seed: int, offer: Offer | None = None) -> bool:
    """Offer every better timetable of the heuristic as soon as it is there, until there is a reason to stop.

    Parameters
    ----------
    control
        Says when to stop.
    operations
        The instance, cut.
    seed
        Of the heuristic.
    offer
        Receives them; `Control.offer` where None.

    Returns
    -------
    bool
        Whether there was any.
    """
    found, offer = False, offer or control.offer
    for timetable in timetables(operations, seed):
        if timetable is not None:
            found = True
            offer(timetable)
        if control.reason() is not None:
            break
    return found


GREEDY = Greedy()
"""The solver registered as ``greedy``."""

"""The moves of the search by name: ours, and third parties' of the entry-point group ``jigsaw_opt.moves``."""

from __future__ import annotations

from typing import ClassVar, Protocol

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.system.plugins import load, loadable, registered

__all__ = ["GROUP", "Move", "move_types", "names"]

GROUP = "jigsaw_opt.moves"
_HERE = "jigsaw_opt.solvers.search"
_OWN = {
    "anneal_sequence": f"{_HERE}.moves.restart:AnnealSequence",
    "group_insertion": f"{_HERE}.cyclic.period_search:GroupInsertion",
    "order_insertion": f"{_HERE}.moves.order_insertion:AnnealOrder",
    "heuristic": f"{_HERE}.moves.heuristic:Heuristic",
    "restart": f"{_HERE}.moves.restart:Restart",
    "intensify": f"{_HERE}.moves.restart:Intensify",
    "even_loads": f"{_HERE}.moves.even_loads:EvenLoads",
    "relocation": f"{_HERE}.moves.restart:Relocate",
    "anneal_activities": f"{_HERE}.moves.activity_orders:AnnealActivities",
    "reorder_window": f"{_HERE}.moves.activity_orders:ReorderWindow",
    "place_in_time": f"{_HERE}.moves.activity_orders:PlaceInTime",
    "other_horizon": f"{_HERE}.moves.other_horizon:OtherHorizon",
}
"""Each is tried once in this order before any is preferred."""


class Move(Protocol):
    """A way to get from the best plan to a better one; a search makes one object of each class.

    A class whose attribute `task_graphs` is true is for instances in which jobs have task graphs or power caps hold,
    any other for the rest. Where jobs may have to follow one another for memory, those whose attribute `in_time` is
    true are made, too; the others are given the best plan in which all jobs fit at once. An object whose attribute
    `exhausted` has become true is made no more.

    Parameters
    ----------
    context
        State that all moves of the search share.
    """

    name: ClassVar[str]

    def __init__(self, context: Context) -> None: ...

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the move can be of use to a search; asked once there are first plans."""

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Look for a better plan.

        Parameters
        ----------
        incumbent
            The best plan so far; None before there is any.
        budget
            Is told the work that is done, and says when to stop.

        Returns
        -------
        Candidate or None
            The best plan that the move has found itself, or None where it has none. The driver compares it with the
            incumbent of that moment, accepts it or not, and credits the move with what it accepts. Plans found on the
            way go to `Context.propose`, where the driver does the same at once: they are not lost where the time ends
            before the move does, and other threads see them.
        """


def names() -> tuple[str, ...]:
    """Return the names of all moves, ours first."""
    return (*_OWN, *(name for name in registered(GROUP) if name not in _OWN))


def move_types() -> list[type[Move]]:
    """Return all moves that load, in the order in which they are first tried."""
    return list(loadable(lambda name: load(GROUP, "move", name, _OWN), names()))

"""The adaptive large neighbourhood search driver: choose a move, make it, keep what is better, reward the move.

Every move has a number of steps or a limit of deterministic work, and chance comes from the seed; only the engine's
parts are ended by a clock where the solve has a time limit and no limit of work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from threading import Event

from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.layout import demands
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves import Move, move_types
from jigsaw_opt.solvers.search.opening import open_search
from jigsaw_opt.solvers.search.selection import AdaptiveSelection

__all__ = ["Driver"]


class Driver:
    """One search under way.

    Parameters
    ----------
    control
        Receives the plans and says when to stop.
    stream
        Number of this search among several on one incumbent; each has chance of its own.
    moves
        Classes of moves beside the registered ones, tried before them.

    Attributes
    ----------
    begun
        Set once the first plans are there: a search beside this one would only find the same before.
    """

    def __init__(self, control: Control, stream: int = 0, moves: Sequence[type[Move]] = ()) -> None:
        self.control, self.stream, self.kinds = control, stream, (*moves,)
        self.rng = random.Random(control.options.seed + (stream << 64))
        self.begun = Event()

    def run(self, share: float = 1.0) -> StoppedBy:
        """Search until there is a reason to stop.

        Parameters
        ----------
        share
            How much the search may use of the limit of work, and of the time that is left.
        """
        asked = demands(self.control.operations)
        if asked is None:
            return StoppedBy.COMPLETED
        budget = Budget(self.control, share)
        context = Context(self.control, asked, self.rng, budget, self.stream)
        # With the moves come the compiled functions that they need, and the opening waits for these.
        kinds, began = self._kinds_left(context), time.monotonic()
        open_search(context, self.begun)
        self.control.credit("opening", time.monotonic() - began, None, self.control.objective)
        # Only now: whether a move applies takes a look at all candidate server sets, and a plan should not wait.
        moves = {kind.name: kind(context) for kind in kinds if kind.applies(context)}
        if not moves:
            return budget.reason() or StoppedBy.COMPLETED
        params = context.params.driver
        selection, idle = AdaptiveSelection(tuple(moves), self.rng, params), 0
        while (reason := budget.reason()) is None:
            if idle >= params.patience and not self._limited:
                return StoppedBy.COMPLETED
            name = selection.next()
            better, spent = self._make(name, moves[name], context)
            selection.reward(name, better, spent)
            idle = 0 if better else idle + 1
        return reason

    def _make(self, name: str, move: Move, context: Context) -> tuple[bool, float]:
        """Make a move; returns whether there is a better plan, and what it took, 0 for nothing.

        That is work, or seconds where only a clock limits the solve.
        """
        control, budget, began = self.control, context.budget, time.monotonic()
        before, work = control.objective, budget.work
        found = move.run(context.incumbent, budget)
        if found is not None:
            control.offer(found.timetable)
        after, seconds = control.objective, time.monotonic() - began
        control.credit(name, seconds, before, after)
        spent = budget.work - work
        return after != before, seconds if spent and control.options.clocked else spent

    @property
    def _limited(self) -> bool:
        options = self.control.options
        return not (options.time_limit is None and options.work_limit is None)

    def _kinds_left(self, context: Context) -> list[type[Move]]:
        """All classes of moves that are not left out."""
        return [kind for kind in (*self.kinds, *move_types()) if kind.name not in context.params.without]

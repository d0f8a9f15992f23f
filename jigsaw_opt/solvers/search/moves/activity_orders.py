"""Moves for instances with task graphs: the orders of the incumbent annealed, or reordered in windows of time."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.solvers.activities.improving import Annealing
from jigsaw_opt.solvers.activities.neighbourhoods import WindowSearch
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context

__all__ = ["AnnealActivities", "ReorderWindow"]


class _OrderMove:
    """A step of a search that goes on from the incumbent, or from its own last plan."""

    task_graphs: ClassVar[bool] = True
    search: ClassVar[type[Annealing | WindowSearch]]

    def __init__(self, context: Context) -> None:
        self._search = self.search(context.solve_state, context.operations, context.offer, context.stream)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether there is a plan to begin with."""
        return context.solve_state.best is not None

    @property
    def exhausted(self) -> bool:
        """Return whether there is no point in going on."""
        return self._search.exhausted

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Make a step; what it finds is offered on the way."""
        before = self._search.spent
        self._search.step(*budget.left)
        budget.spend(self._search.spent - before)
        return None


class AnnealActivities(_OrderMove):
    """Anneals the order of all activities, from the incumbent and from list schedules in turn."""

    name = "anneal_activities"
    search = Annealing


class ReorderWindow(_OrderMove):
    """Reorders a window of time by CP-SAT; the order of all else stays."""

    name = "reorder_window"
    search = WindowSearch

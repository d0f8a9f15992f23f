"""Moves on orders of activities, for jobs with task graphs and for jobs that follow one another for their memory."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.solvers.activities.orders.improving import Annealing
from jigsaw_opt.solvers.activities.orders.neighbourhoods import WindowSearch
from jigsaw_opt.solvers.activities.orders.search_in_time import SearchInTime
from jigsaw_opt.solvers.activities.placing import fit_at_once
from jigsaw_opt.solvers.activities.stepwise import StepwiseSearch
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context

_LEAST_WORK = 0.002
"""Deterministic seconds that a step in time counts as at least, however small the instance."""


class _OrderMove:
    """A step of a search that goes on from the incumbent, or from its own last plan."""

    task_graphs: ClassVar[bool] = True
    in_time: ClassVar[bool] = True
    search: ClassVar[type[StepwiseSearch]]

    def __init__(self, context: Context) -> None:
        self._search = self.search(context.solve_state, context.operations, context.offer, context.stream)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether none is held and there is a plan, of task graphs or one whose jobs do not fit all at once."""
        best, operations = context.solve_state.best, context.operations
        return (
            not context.data.layout.held
            and best is not None
            and (operations.needs_network or not fit_at_once(operations, best))
        )

    @property
    def exhausted(self) -> bool:
        """Return whether there is no point in going on."""
        return self._search.exhausted

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Make a step; what it finds is offered on the way."""
        before = self._search.spent
        self._search.step(*budget.left)
        least = _LEAST_WORK if self._search.operations.has_scarce_holdings else 0.0
        budget.spend(max(least, self._search.spent - before))
        return None


class AnnealActivities(_OrderMove):
    """Anneals the order of all activities, from the incumbent and from list schedules in turn."""

    name = "anneal_activities"
    search = Annealing


class ReorderWindow(_OrderMove):
    """Reorders a window of time by CP-SAT; the order of all else stays."""

    name = "reorder_window"
    search = WindowSearch


class PlaceInTime(_OrderMove):
    """Places jobs that follow one another for their memory, and schedules them."""

    name = "place_in_time"
    search = SearchInTime

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether memory stands in the way: jobs may have to follow one another, and there is no better plan."""
        scarce = context.operations.has_scarce_holdings and not context.data.layout.held
        return scarce and (context.solve_state.best is None or super().applies(context))

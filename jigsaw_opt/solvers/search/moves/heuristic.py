"""Heuristic: the trials of the greedy heuristic, so that no search ends behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from jigsaw_opt.solvers.greedy.evaluation import Outcome
from jigsaw_opt.solvers.greedy.heuristic import trials
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, ListSchedule

__all__ = ["Heuristic", "Trials"]


class Trials:
    """The trials of the heuristic, made as far as they are asked for.

    Parameters
    ----------
    context
        Takes what they find.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._trials: Iterator[Outcome | None] = trials(
            context.evaluator, context.data, context.solve_state.options.seed
        )

    def make(self, most: int | None = None) -> Candidate | None:
        """Make the next trials until there is a reason to stop, and return the best of them.

        At least one is made; all of them where `most` is None.
        """
        context, found = self.context, None
        for outcome in islice(self._trials, most):
            context.budget.spend(context.evaluation_work)
            if outcome is not None:
                schedule = ListSchedule(outcome.jobs, outcome.priority, outcome.offset_us, outcome)
                context.propose_list(schedule)
                candidate = context.candidate(schedule)
                found = candidate if candidate.better_than(found) else found
            if context.budget.over():
                break
        return found


class Heuristic:
    """Makes the trials that are left after the opening; once there are none it has nothing to do."""

    name: ClassVar[str] = "heuristic"

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether this is the first of several searches, which makes the trials for all of them."""
        return context.stream == 0

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Make the trials that are left.

        Parameters
        ----------
        incumbent
            The best plan so far; not used.
        budget
            Is not used: the trials know that of the search.

        Returns
        -------
        Candidate | None
            The best plan of the trials, or None.
        """
        return self.context.shared(Trials).make()

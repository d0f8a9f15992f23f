"""Heuristic: the trials of the greedy heuristic, so that no search ends behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import ClassVar

from jigsaw_opt.solvers.activities.heuristic import timetables_in_time
from jigsaw_opt.solvers.activities.stepwise import SECONDS_OF_LISTING
from jigsaw_opt.solvers.greedy.evaluation import Outcome
from jigsaw_opt.solvers.greedy.heuristic import trials
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, ListSchedule

_SHARE_IN_TIME, _SHARE_WITHOUT_PLAN = 0.1, 0.5
"""Share of the limits of a call for schedules in which jobs follow one another for memory, where there is a plan, and
where there is none."""
_SHARE_OF_FIRST = 0.2
"""Largest share of the limits that the first of these schedules may take, without which the others are not made."""


class Trials:
    """The trials of the heuristic, made as far as they are asked for.

    `gains_in_time`: whether a schedule in which jobs follow one another for memory was better than all before it.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        seed, self._size = context.solve_state.options.seed, context.operations.blocks + context.operations.transfers
        self._trials: Iterator[Outcome | None] = trials(context.evaluator, context.data, seed)
        self._in_time, self.gains_in_time = timetables_in_time(context.operations, seed, inf), False

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

    def make_in_time(self, share: float) -> None:
        """Make the next schedules in which jobs follow one another for memory, unless some are held: these go anywhere.

        `share`: share of the limits that it may take from the last better one on.
        """
        context, work = self.context, self._size * SECONDS_OF_LISTING
        if context.data.layout.held:
            return
        if context.incumbent is not None and work > max(share, _SHARE_OF_FIRST) * context.budget.left[0]:
            return  # Not even one of them is worth what it takes.
        with context.budget.slice(share):
            for timetable in self._in_time:
                context.budget.spend(work)
                if timetable is not None and context.offer(timetable) is not None:
                    self.gains_in_time = True
                    context.budget.renew()
                if context.budget.over():
                    break


class Heuristic:
    """Makes the trials that are left after the opening; once there are none it has nothing to do."""

    name: ClassVar[str] = "heuristic"
    in_time: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether this is the first of several searches, which makes the trials for all of them."""
        return context.stream == 0 and not context.operations.needs_network

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Make the trials that are left.

        The best plan of the trials, or None.
        """
        trials = self.context.shared(Trials)
        found = trials.make()
        if self.context.incumbent is None or trials.gains_in_time:
            trials.make_in_time(_SHARE_WITHOUT_PLAN if self.context.solve_state.best is None else _SHARE_IN_TIME)
        return found

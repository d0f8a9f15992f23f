"""The other horizon: a search for finite plans of the jobs of a cyclic instance, each of which makes a cyclic plan.

A finite plan repeated is a cyclic plan whose period is its makespan (specification: cyclic-horizon). Brought over, its
operations keep their order and start as early as that lets them. The converse, one period of a cyclic plan as a finite
plan, is true as well, but on finite instances it took a sixth of the time and never led to a better plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.result import Accepted, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.solve_state import SolveState


def twin(operations: Operations) -> Operations:
    """Return the same jobs on the finite horizon, where memory has to hold all of them at once as on the cyclic one."""
    instance = altered(operations.instance, horizon="finite", objective="makespan")
    found = replace(operations, instance=instance, horizon="finite", objective="makespan")
    found.__dict__["has_scarce_holdings"] = False
    return found


def brought_over(plan: Timetable, context: Context) -> Candidate:
    """Return a finite plan as one of a cyclic search, and propose it there."""
    return context.shared(SequenceAnnealing).compressed(repeated(plan))


def repeated(plan: Timetable) -> Timetable:
    """Return a finite plan as a cyclic one, with its makespan as the period."""
    return Timetable(plan.jobs, max(1, *(job.end_us for job in plan.jobs)))


class OtherHorizon:
    """Makes moves of a search on the other horizon, beginning with its opening, and brings over what they find.

    What is found on this horizon meanwhile is brought over to that one, too.
    """

    name: ClassVar[str] = "other_horizon"

    def __init__(self, context: Context) -> None:
        self.context, self.solve_state = context, _TwinControl(context)
        self._driver = Driver(self.solve_state, context.stream, held=context.data.layout.held)
        self._more: bool | None = None
        self._known = 0

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is cyclic and sequences are annealed at all."""
        return context.cyclic and context.shared(SequenceAnnealing).fits

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Make moves on the other horizon as long as they find better plans.

        The last plan that improved on the incumbent, or None.

        `incumbent`: the best plan so far; brought over to the other search where it is new.
        """
        found = None
        if self._more and incumbent is not None and incumbent.value != self._known:
            brought_over(incumbent.timetable, self._driver.context)
        while self.solve_state.reason() is None and not budget.over() and (plan := self._step(budget)) is not None:
            before, after = self.context.incumbent, brought_over(plan, self.context)
            if after.better_than(before):
                found, self._known = after, after.value
        return found

    def _step(self, budget: Budget) -> Timetable | None:
        """Make one move there, at first the opening; return its plan if that is better than all before."""
        before = self.solve_state.objective
        if self._more is None:
            self._more = self._driver.open(Budget(self.solve_state, parent=budget))
        elif self._more:
            self._driver.step()
        return None if self.solve_state.objective == before else self.solve_state.best


class _TwinControl(SolveState):
    """The solve_state of the search on the other horizon; it stops for whatever ends the solve.

    A finite plan is proposed as a cyclic one at once, so that none is lost where the time ends before its move does.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._parent = context, context.solve_state
        options = _options(self._parent.options)
        super().__init__(self._parent.name, twin(context.operations), options, lambda _: None)

    def offer(self, timetable: Timetable) -> Accepted | None:
        """Take a plan as the new incumbent if it is better."""
        accepted = super().offer(timetable)
        if accepted is not None:
            self._context.propose(self._context.candidate(repeated(timetable)))
        return accepted

    def reason(self) -> StoppedBy | None:
        """Return why the search should stop now, or None."""
        return self._parent.reason() or super().reason()


def _options(options: Options) -> Options:
    """Return the options of the solve without its goals, and without this move."""
    params = options.params or SearchParams()
    params = replace(params, without=(*params.without, OtherHorizon.name))
    return replace(options, gap=None, target=None, no_improvement=None, params=params)

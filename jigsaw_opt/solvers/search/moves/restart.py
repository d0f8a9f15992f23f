"""Restart, intensify, relocate, order: a new placement, the best list schedule, and the best sequence, annealed."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.moves.list_annealing import Annealer, draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing


class Intensify:
    """Anneals from the best list schedule."""

    name: ClassVar[str] = "intensify"

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether there are too many operations for their sequence to be annealed quickly."""
        return not context.sequenced

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Anneal the best list schedule.

        The best plan found, or None where there is no list schedule.
        """
        context = self.context
        if context.best_list is None:
            return None
        return context.shared(Annealer).run(context.shared(Placing).balancer(1.0), context.best_list)


class Restart(Intensify):
    """Begins anew; where memory leaves no drawn order room, it intensifies instead."""

    name: ClassVar[str] = "restart"

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return True: it always applies."""
        return True

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Place all jobs anew, balance the loads, and anneal.

        The best plan found, or None where memory admits no levels.
        """
        context = self.context
        balancer = context.shared(Placing).balanced()
        if balancer is None:
            return super().run(incumbent, budget)
        schedule = draft(context, balancer)
        if schedule is None:
            return None
        brief = context.rng.random() < context.params.list_annealing.brief_share
        return context.shared(Annealer).run(balancer, schedule, brief)


class Relocate:
    """Anneals placements, from the best plan on."""

    name: ClassVar[str] = "relocation"

    def __init__(self, context: Context) -> None:
        self.context, self.sequences = context, context.shared(SequenceAnnealing)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether sequences are annealed at all, and some job may go elsewhere."""
        return context.shared(SequenceAnnealing).fits and not context.all_held

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Anneal from the best plan repeatedly, for a limited work.

        The best plan found, or None.

        `incumbent`: the best plan so far; not used, since each round asks the solve state.
        """
        found = None
        enough = self.sequences.work + self.context.params.relocation.work
        while self.sequences.work < enough:
            best = self.context.incumbent
            if best is None or budget.over():
                break
            after = self.annealed(best.timetable)
            found = after if after.better_than(found) else found
        return found

    def annealed(self, plan: Timetable) -> Candidate:
        """Return a plan with jobs elsewhere."""
        return self.sequences.relocate(self.context.shared(Placing).balancer(), plan)


class AnnealSequence(Relocate):
    """Anneals the sequence of the best plan, whose jobs stay where they are."""

    name: ClassVar[str] = "anneal_sequence"

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether sequences are annealed at all, and the horizon is cyclic or no job may go elsewhere."""
        return context.shared(SequenceAnnealing).fits and (context.cyclic or context.all_held)

    def annealed(self, plan: Timetable) -> Candidate:
        """Return a plan with its operations in another order."""
        return self.sequences.anneal(plan)

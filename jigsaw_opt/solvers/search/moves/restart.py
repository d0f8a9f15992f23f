"""Restart: a placement made anew, balanced and annealed; and the best list schedule annealed once more."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.moves.list_annealing import Annealer, draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing

__all__ = ["Intensify", "Restart"]


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


class Restart:
    """Begins anew; where memory leaves no drawn order room, it intensifies instead."""

    name: ClassVar[str] = "restart"

    def __init__(self, context: Context) -> None:
        self.context = context

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
            return Intensify(context).run(incumbent, budget)
        schedule = draft(context, balancer)
        if schedule is None:
            return None
        brief = context.rng.random() < context.params.list_annealing.brief_share
        return context.shared(Annealer).run(balancer, schedule, brief)

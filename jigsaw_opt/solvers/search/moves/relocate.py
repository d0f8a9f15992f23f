"""Relocation: jobs put elsewhere while the sequence of all operations is carried along."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.moves.list_annealing import draft
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.placing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing

__all__ = ["Relocate"]


class Relocate:
    """Anneals placements, from the best plan or a placement made anew."""

    name: ClassVar[str] = "relocation"

    def __init__(self, context: Context) -> None:
        self.context, self.sequences = context, context.shared(SequenceAnnealing)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Where sequences are annealed at all."""
        return context.shared(SequenceAnnealing).fits

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Relocate from one start after the other, for a share of work."""
        context, sequences, params = self.context, self.sequences, self.context.params.relocation
        enough = sequences.work + params.work
        while sequences.work < enough:
            best = context.control.best
            start = self._anew() if best is None or context.rng.random() >= params.from_best else None
            if start is None and best is not None:
                start = context.shared(Placing).balancer(), best
            if start is None or budget.over():
                break
            sequences.relocate(*start)
        return context.incumbent

    def _anew(self) -> tuple[LoadBalancer, Timetable] | None:
        """A placement made anew, and its list schedule."""
        balancer = self.context.shared(Placing).balanced()
        schedule = None if balancer is None else draft(self.context, balancer)
        if balancer is None or schedule is None:
            return None
        return balancer, self.context.evaluator.timetable(schedule.outcome)

"""Relocation: jobs put elsewhere while the sequence of all operations is carried along."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.moves.load_balancing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing

__all__ = ["Relocate"]


class Relocate:
    """Anneals placements, from the best plan on."""

    name: ClassVar[str] = "relocation"

    def __init__(self, context: Context) -> None:
        self.context, self.sequences = context, context.shared(SequenceAnnealing)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether sequences are annealed at all."""
        return context.shared(SequenceAnnealing).fits

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Relocate jobs from the best plan repeatedly, for a limited work.

        The best plan found, or None.

        `incumbent`: the best plan so far; not used, since each round asks the solve state.
        """
        context, sequences, found = self.context, self.sequences, None
        enough = sequences.work + context.params.relocation.work
        while sequences.work < enough:
            best = context.incumbent
            if best is None or budget.over():
                break
            after = sequences.relocate(context.shared(Placing).balancer(), best.timetable)
            found = after if after.better_than(found) else found
        return found

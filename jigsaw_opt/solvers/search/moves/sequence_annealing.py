"""Annealing of a plan's operation sequence at its placement, and of placements with the sequence carried along."""

from __future__ import annotations

from functools import cached_property, partial

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.relocation import Relocation
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch

__all__ = ["SequenceAnnealing"]

_OPERATION = {"finite": 2e-8, "cyclic": 3 * 2e-8}
"""Deterministic seconds that an operation of a sequence counts as, by horizon: a cyclic pass takes about thrice as long
for it."""
_CYCLIC_SHARE = 4
"""A cyclic annealing evaluates one part in so many of the operations of a finite one, for each takes longer."""
_PLACEMENTS = 300
"""Placements tried in one relocation at first; calls in vain make it longer."""


class SequenceAnnealing:
    """Plans of a finite horizon made better by another order of their operations.

    `fits`: whether sequences are annealed at all: there are not too many operations.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.rng = context, context.rng
        self.params = context.params.sequence_annealing
        self.work, self.fits = 0.0, context.annealable
        self._effort = Effort(context.params.driver.longest)

    @cached_property
    def sequencing(self) -> SequenceSearch:
        """Return the search for sequences."""
        return SequenceSearch(self.context.data, self.rng)

    @property
    def steps(self) -> int:
        """Return how many orders an annealing tries."""
        operations = self.params.operations // (_CYCLIC_SHARE if self.context.cyclic else 1)
        return max(1, operations // self.sequencing.size)

    def anneal(self, plan: Timetable) -> Candidate:
        """Return a plan with its operations in another order."""
        start, steps = self.sequencing.given(plan), self.steps
        after = self.sequencing.anneal(
            start, start.assignments, steps, self.rng.choice(self.params.temperatures), self.swept
        )
        return self.proposed(after)

    def compressed(self, plan: Timetable) -> Candidate:
        """Return a plan with its operations in the order of their starts, each as early as that order permits."""
        start = self.sequencing.given(plan)
        return self.proposed(self.sequencing.anneal(start, start.assignments, 1, 0.0, self.swept))

    def relocate(self, balancer: LoadBalancer, plan: Timetable) -> Candidate:
        """Return a plan with some of its jobs elsewhere; each call without success makes the next one longer."""
        before, relocation = self.context.incumbent, Relocation(balancer, self.sequencing, self.rng)
        steps = round(self._effort.length * _PLACEMENTS)
        temperature, start = self.rng.choice(self.context.params.relocation.temperatures), self.sequencing.given(plan)
        found = self.proposed(relocation.run(start, steps, temperature, self.proposed, self.swept))
        after = self.anneal(found.timetable)
        found = after if after.better_than(found) else found
        self._effort.spent(found.better_than(before))
        return found

    def proposed(self, schedule: SequencedSchedule) -> Candidate:
        """Propose a schedule, and return it as a candidate."""
        candidate = Candidate(schedule.value, partial(self.sequencing.timetable, schedule))
        self.context.propose(candidate)
        return candidate

    def swept(self, operations: int) -> bool:
        """Count operations that were evaluated; return whether the budget is used up."""
        work = operations * _OPERATION[self.context.operations.horizon]
        self.work += work
        return self.context.budget.spend(work)

"""Rebalancing: what binds in the best plan, loads or a circuit of jobs, is changed, and its sequence follows."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.search.placement_search import PlacementSearch
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule

_PLACED_OPERATION, _STEP = 1e-6, 1.5e-7
"""Deterministic seconds that an operation of a plan of which the placement is annealed, and a step of that annealing,
count as: about what Python takes for the one and compiled code for the other."""
_ANEW_SHARES = (0.5, 0.8, 0.9, 0.95)
"""How far the largest load falls to the mean where all jobs are then scheduled anew; one is drawn. There is no sequence
to be kept, so loads may become nearly equal."""
_STEPS, _ANEW_STEPS = 30, 300
"""Steps of annealing the placement for each worker, in a plan whose sequence is kept, and where all is made anew."""
_SEQUENCE_SHARE, _ANEW_LENGTH = 0.5, 4.0
"""How long the sequence is annealed after a change, and where it is a new one, against a usual annealing."""
_TEMPERATURE = 0.001
"""Share of the objective that this may lose at first: most of the sequence is right already."""
_LONGEST = 8.0
"""How much longer both go on in vain, at most; each call is long already, and other moves wait for their turn."""


class Rebalance:
    """Makes the largest load of the best plan less, and takes jobs off its critical circuit."""

    name: ClassVar[str] = "rebalance"

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.rebalance
        self._annealing = context.shared(SequenceAnnealing)
        self._workers = sum(job.slots for job in context.operations.jobs)
        self._effort = Effort(_LONGEST)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is cyclic and sequences are annealed at all."""
        return context.cyclic and context.shared(SequenceAnnealing).fits

    @cached_property
    def _placements(self) -> PlacementSearch:
        return PlacementSearch(self.context.data, self.rng)

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Schedule all jobs anew at similar loads, then change the better plan repeatedly.

        The improved plan, or None.

        `incumbent`: the best plan so far; None before there is any.
        """
        if incumbent is None:
            return None
        work = budget.work
        start = self._annealing.sequencing.given(incumbent.timetable)
        # Only an annealed schedule knows its critical circuit.
        best = self._anew(self._sequenced(start, _SEQUENCE_SHARE))
        while not budget.over() and budget.work - work < self.params.work * self._effort.length:
            after = self._changed(best)
            if after is not None and after.value <= best.value:
                if after.value < best.value:
                    self._annealing.proposed(after)
                best = after
        self._effort.spent(best.value < start.value)
        return self._annealing.proposed(best) if best.value < start.value else None

    def _anew(self, before: SequencedSchedule) -> SequencedSchedule:
        """Return the better of a schedule and a new one at loads that are alike."""
        even = self._placed(before, self.rng.choice(_ANEW_SHARES), _ANEW_STEPS)
        if even is None or self.context.budget.over():
            return before
        context, count = self.context, len(even.assignments)
        self.context.budget.spend(context.evaluation_work)
        outcome = context.evaluator.evaluate(even.assignments, [1.0] * count, [0] * count)
        after = self._sequenced(
            self._annealing.sequencing.given(context.evaluator.timetable(outcome)), _ANEW_LENGTH * self._effort.length
        )
        return after if after.value < before.value else before

    def _changed(self, before: SequencedSchedule) -> SequencedSchedule | None:
        """Return a schedule in which the binding resource or job has changed."""
        after = self._placed(before, self.rng.choice(self.params.shares), _STEPS)
        if after is None or self.context.budget.over():
            return None
        return self._sequenced(after, _SEQUENCE_SHARE, before.value)

    def _placed(self, before: SequencedSchedule, share: float, steps_per_worker: int) -> SequencedSchedule | None:
        spend = self.context.budget.spend
        spend(self._annealing.sequencing.size * _PLACED_OPERATION)
        steps = steps_per_worker * self._workers
        return self._placements.rebalanced(before, share, steps, lambda done: spend(done * _STEP))

    def _sequenced(self, schedule: SequencedSchedule, length: float, cutoff: float = float("inf")) -> SequencedSchedule:
        steps = max(1, round(length * self._annealing.steps))
        return self._annealing.sequencing.anneal(
            schedule, schedule.assignments, steps, _TEMPERATURE, self._annealing.swept, cutoff
        )

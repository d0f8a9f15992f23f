"""Rebalancing: what binds in the best plan, loads or a circuit of jobs, is changed, and its sequence follows."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.effort import Effort
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.search.placement_search import PlacementSearch
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule

__all__ = ["Rebalance"]


class Rebalance:
    """Makes the largest load of the best plan less, and takes jobs off its critical circuit.

    Parameters
    ----------
    context
        The search.
    """

    name: ClassVar[str] = "rebalance"

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.rebalance
        self._annealing = context.shared(SequenceAnnealing)
        self._workers = sum(job.slots for job in context.operations.jobs)
        self._effort = Effort(self.params.longest)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is cyclic and sequences are annealed at all."""
        return context.cyclic and context.shared(SequenceAnnealing).fits

    @cached_property
    def _placements(self) -> PlacementSearch:
        return PlacementSearch(self.context.data, self.rng)

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Schedule all jobs anew at similar loads, then change the better plan repeatedly.

        Parameters
        ----------
        incumbent
            The best plan so far; None before there is any.
        budget
            Is told the work, and says when to stop.

        Returns
        -------
        Candidate | None
            The improved plan, or None.
        """
        if incumbent is None:
            return None
        work = budget.work
        start = self._annealing.sequencing.given(incumbent.timetable)
        # Only an annealed schedule knows its critical circuit.
        best = self._anew(self._sequenced(start, self.params.sequence_share))
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
        even = self._placed(before, self.rng.choice(self.params.anew_shares), self.params.anew_steps_per_worker)
        if even is None or self.context.budget.over():
            return before
        context, count = self.context, len(even.assignments)
        self.context.budget.spend(context.evaluation_work)
        outcome = context.evaluator.evaluate(even.assignments, [1.0] * count, [0] * count)
        after = self._sequenced(
            self._annealing.sequencing.given(context.evaluator.timetable(outcome)),
            self.params.anew_length * self._effort.length,
        )
        return after if after.value < before.value else before

    def _changed(self, before: SequencedSchedule) -> SequencedSchedule | None:
        """Return a schedule in which the binding resource or job has changed."""
        after = self._placed(before, self.rng.choice(self.params.shares), self.params.steps_per_worker)
        if after is None or self.context.budget.over():
            return None
        return self._sequenced(after, self.params.sequence_share, before.value)

    def _placed(self, before: SequencedSchedule, share: float, steps_per_worker: int) -> SequencedSchedule | None:
        prices, spend = self.context.params.prices, self.context.budget.spend
        spend(self._annealing.sequencing.size * prices.placement_operation)
        steps = steps_per_worker * self._workers
        return self._placements.rebalanced(before, share, steps, lambda done: spend(done * prices.placement_step))

    def _sequenced(self, schedule: SequencedSchedule, length: float, cutoff: float = float("inf")) -> SequencedSchedule:
        steps = max(1, round(length * self._annealing.steps))
        return self._annealing.sequencing.anneal(
            schedule, schedule.assignments, steps, self.params.temperature, self._annealing.swept, cutoff
        )

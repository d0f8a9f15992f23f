"""Annealing of a plan's operation sequence at its placement, and of placements with the sequence carried along."""

from __future__ import annotations

from functools import cached_property

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.effort import Effort
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.relocation import Relocation
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch

__all__ = ["SequenceAnnealing"]


class SequenceAnnealing:
    """Plans of a finite horizon made better by another order of their operations.

    Parameters
    ----------
    context
        The search.

    Attributes
    ----------
    work
        Deterministic seconds so far.
    fits
        Whether sequences are annealed at all: there are not too many operations.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.control, self.rng = context, context.control, context.rng
        self.params = context.params.sequence_annealing
        self.work = 0.0
        waits = sum(job.iterations * job.slots * len(job.transfers) for job in context.operations.jobs)
        self.fits = waits <= self.params.most_waits
        self._effort = Effort(context.params.driver.longest)

    @cached_property
    def _sequencing(self) -> SequenceSearch:
        return SequenceSearch(self.context.data, self.rng)

    def anneal(self, plan: Timetable) -> None:
        """A plan with its operations in another order, offered where it is the best one."""
        start = self._sequencing.given(plan)
        steps = max(1, self.params.operations_on(self.context.operations.horizon) // self._sequencing.size)
        after = self._sequencing.anneal(
            start, start.assignments, steps, self.rng.choice(self.params.temperatures), self._swept
        )
        self._offer(after)

    def relocate(self, balancer: LoadBalancer, plan: Timetable) -> None:
        """A plan with some of its jobs elsewhere: the longer the more often that was in vain."""
        relocating = self.context.params.relocation
        before, relocation = self.control.objective, Relocation(balancer, self._sequencing, self.rng)
        steps = round(self._effort.length * relocating.placements)
        temperature, start = self.rng.choice(relocating.temperatures), self._sequencing.given(plan)
        after = relocation.run(start, steps, temperature, self._offer, self._swept)
        self.anneal(self._sequencing.timetable(after))
        self._effort.spent(self.control.objective != before)

    def _offer(self, schedule: SequencedSchedule) -> bool:
        """Keep a schedule if it is better than the incumbent; says whether it is."""
        objective = self.control.objective
        if objective is not None and schedule.value >= objective:
            return False
        return self.control.offer(self._sequencing.timetable(schedule))

    def _swept(self, operations: int) -> bool:
        work = operations * self.context.params.prices.sequence_operation_on(self.context.operations.horizon)
        self.work += work
        return self.context.budget.spend(work)

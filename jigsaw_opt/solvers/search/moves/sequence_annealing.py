"""Annealing of a plan's operation sequence at its placement, and of placements with the sequence carried along."""

from __future__ import annotations

from functools import cached_property, partial

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.effort import Effort
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.placing import Placing
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
        self.context, self.rng = context, context.rng
        self.params = context.params.sequence_annealing
        self.work = 0.0
        waits = sum(job.iterations * job.slots * len(job.transfers) for job in context.operations.jobs)
        self.fits = waits <= self.params.most_waits
        self._effort = Effort(context.params.driver.longest)

    @cached_property
    def _sequencing(self) -> SequenceSearch:
        return SequenceSearch(self.context.data, self.rng)

    def anneal(self, plan: Timetable) -> Candidate:
        """A plan with its operations in another order."""
        start = self._sequencing.given(plan)
        after = self._sequencing.anneal(
            start, start.assignments, self._steps, self.rng.choice(self.params.temperatures), self._swept
        )
        return self._proposed(after)

    def compressed(self, plan: Timetable) -> Candidate:
        """A plan with its operations in the order of their starts, each as early as that lets it."""
        start = self._sequencing.given(plan)
        return self._proposed(self._sequencing.anneal(start, start.assignments, 1, 0.0, self._swept))

    def relocate(self, balancer: LoadBalancer, plan: Timetable) -> Candidate:
        """A plan with some of its jobs elsewhere: the longer the more often that was in vain.

        After a call in vain it often begins with a share of the jobs placed anew instead, which is as large as the
        call would be long.
        """
        before, params, length = self.context.incumbent, self.context.params.relocation, self._effort.length
        start, steps = self._sequencing.given(plan), round(length * params.placements)
        if length > 1 and self.rng.random() < params.ruin_share:
            perturbed = self._perturbed(balancer, start, min(params.most_ruined, length * params.least_ruined))
            if perturbed is not None:
                start, steps = perturbed, params.placements
        relocation = Relocation(balancer, self._sequencing, self.rng)
        found = self._proposed(
            relocation.run(start, steps, self.rng.choice(params.temperatures), self._proposed, self._swept)
        )
        after = self.anneal(found.timetable)
        found = after if after.better_than(found) else found
        self._effort.spent(found.better_than(before))
        return found

    def _perturbed(self, balancer: LoadBalancer, schedule: SequencedSchedule, share: float) -> SequencedSchedule | None:
        """A schedule with a share of its jobs placed anew and its sequence repaired; None where one finds no room."""
        balancer.adopt(schedule.assignments)
        # Half of the time around a job that the objective hangs on, else around what is full.
        critical = schedule.critical_jobs
        first = self.rng.choice(critical) if critical and self.rng.random() < 0.5 else None
        placed = balancer.ruin_and_recreate(first, share)
        self.context.budget.spend(share * self.context.shared(Placing).construction_work)
        assignments = balancer.placement.resolved() if placed else None
        if assignments is None:
            return None
        temperature = self.context.params.relocation.repair_temperature
        return self._sequencing.anneal(schedule, assignments, max(1, self._steps // 2), temperature, self._swept)

    @property
    def _steps(self) -> int:
        """Steps of one annealing."""
        return max(1, self.params.operations_on(self.context.operations.horizon) // self._sequencing.size)

    def _proposed(self, schedule: SequencedSchedule) -> Candidate:
        candidate = Candidate(schedule.value, partial(self._sequencing.timetable, schedule))
        self.context.propose(candidate)
        return candidate

    def _swept(self, operations: int) -> bool:
        work = operations * self.context.params.prices.sequence_operation_on(self.context.operations.horizon)
        self.work += work
        return self.context.budget.spend(work)

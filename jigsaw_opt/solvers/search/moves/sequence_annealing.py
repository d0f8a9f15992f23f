"""Annealing of a plan's operation sequence at its placement, and of placements with the sequence carried along."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.kernels.sequence_annealing import beyond_cutoff
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch

_REPAIR_STEPS, _REPAIR_OPERATIONS = 200, 2_000_000
"""Steps that repair the sequence at a placement, and operations evaluated for that, at most. A poor placement shows
soon, so more placements gain more than a better sequence for each."""
_REPAIR_TEMPERATURE = 0.001
"""Share of the objective that the first steps of a repair may lose; the sequence is nearly right already."""
_CHANGE_OPERATIONS = 10_000
"""Operations of a sequence that are evaluated in the time in which Python changes the placement."""


class Relocation:
    """Moves jobs from a schedule to a better one.

    `balancer`: makes the changes of the placement.
    """

    def __init__(self, balancer: LoadBalancer, sequencing: SequenceSearch, rng: random.Random) -> None:
        self.balancer, self.sequencing, self.rng = balancer, sequencing, rng
        self._focus_share = balancer.data.params.list_annealing.focus_share
        self._swaps = max(1, min(_REPAIR_STEPS, _REPAIR_OPERATIONS // sequencing.size))

    def run(
        self,
        start: SequencedSchedule,
        steps: int,
        temperature: float,
        watch: Callable[[SequencedSchedule], object],
        stop: Callable[[int], bool],
    ) -> SequencedSchedule:
        """Return the best schedule that some steps lead to.

        `temperature`: share of the objective that the first steps may lose; it falls to 0. `stop`: called now and then
        with the number of operations swept since; true ends the run.
        """
        self.balancer.adopt(start.assignments)
        best = current = start
        for step in range(steps):
            if stop(_CHANGE_OPERATIONS):
                break
            change = self.balancer.change(self._late(current))
            if change is None:
                continue
            limit = current.value + temperature * best.value * (1 - step / steps) ** 2 * self.rng.expovariate(1.0)
            assignments = (
                None if beyond_cutoff(self._least(change[0]), limit, 1.0) else self.balancer.placement.resolved()
            )
            if assignments is None:
                self.balancer.undo(change[0])
                continue
            after = self.sequencing.anneal(current, assignments, self._swaps, _REPAIR_TEMPERATURE, stop, limit)
            if after.value > limit:
                self.balancer.undo(change[0])
                continue
            current = after
            if after.value < best.value:
                best = after
                watch(best)
        return best

    def _least(self, moved: Sequence[tuple[int, Assignment]]) -> int:
        """Return a bound on the makespan or period from all loads, and from the lengths of the jobs that have moved."""
        placement = self.balancer.placement
        if self.balancer.data.operations.objective == "weighted_completion":
            return 0
        assignments = [placement.placed(index) for index, _ in moved]
        lengths = [
            assignment.job.release_us + assignment.iteration_us * assignment.job.iterations
            for assignment in assignments
        ]
        return max(*placement.gpu_us, *placement.link_us, *lengths)

    def _late(self, current: SequencedSchedule) -> int | None:
        """Return, in some of the calls, a critical job or one that shares a GPU with it; else None."""
        if self.rng.random() >= self._focus_share or not current.critical_jobs:
            return None
        gpu = self.rng.choice([gpu for index in current.critical_jobs for gpu in current.assignments[index].gpus])
        return self.rng.choice(list(self.balancer.placement.on_gpu[gpu]))


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
        return self.proposed(self.annealed(self.sequencing.given(plan)))

    def annealed(self, schedule: SequencedSchedule) -> SequencedSchedule:
        """Return a schedule with its operations in another order."""
        temperature = self.rng.choice(self.params.temperatures)
        return self.sequencing.anneal(schedule, schedule.assignments, self.steps, temperature, self.swept)

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

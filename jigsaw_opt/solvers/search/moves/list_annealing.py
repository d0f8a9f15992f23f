"""Simulated annealing over placement, priorities and release offsets; a list schedule says what a change is worth."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort, ListSchedule
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing

_LEAST_PRIORITY, _MOST_PRIORITY = 0.3, 1.7
"""Range of the factors on priorities. Their mean is one; and a range that was larger would order jobs by chance alone,
not by the critical path that each has left."""
_MOST_STEPS = 5_000
"""Most steps of one annealing. On small instances, where steps cost little, longer ones only delay the next start."""
_BRIEF = 0.5
"""Length of a brief annealing, against that of a usual one."""
_LONGEST = 4.0
"""How much longer an annealing becomes in vain, at most, on the finite horizon: there other moves follow it, and a new
start gains more than a very long annealing."""


def draft(context: Context, balancer: LoadBalancer) -> ListSchedule | None:
    """Return the list schedule of a placement, without factors on priorities; None where memory admits no levels."""
    assignments = balancer.placement.resolved()
    if assignments is None:
        return None
    priority, offset = [1.0] * len(assignments), [0] * len(assignments)
    return ListSchedule(
        balancer.assignments(), priority, offset, context.evaluator.evaluate(assignments, priority, offset)
    )


class ListAnnealing:
    """One annealing.

    `context`: the search. Every list schedule that is better than all before is proposed to it. `balancer`: makes the
    changes of the placement.
    """

    def __init__(self, context: Context, balancer: LoadBalancer) -> None:
        self.context, self.balancer, self.evaluator, self.rng = context, balancer, context.evaluator, context.rng
        self.params = context.params.list_annealing

    def run(self, start: ListSchedule, steps: int, initial: float) -> ListSchedule:
        """Return the best list schedule that some steps lead to.

        `initial`: share of the objective that the first steps may lose; it falls to 0.
        """
        self.balancer.adopt(start.assignments)
        best = current = start
        for step in range(steps):
            temperature = initial * best.value * (1 - step / steps) ** 2
            after = self._step(current, temperature)
            if after is not None:
                current = after
                if after.value < best.value:
                    best = after
                    self.context.propose_list(best)
            self.context.budget.spend(self.context.evaluation_work)
            if self.context.budget.over():
                break
        return best

    def _step(self, current: ListSchedule, temperature: float) -> ListSchedule | None:
        """Return the list schedule after one change, or None where the change is not kept."""
        priority, offset = current.priority, current.offset_us
        moved: Sequence[tuple[int, Assignment]] = ()
        if self.rng.random() < self.params.placement_share:
            change = self.balancer.change(self._late(current))
            if change is None:
                return None
            moved = change[0]
        else:
            priority, offset = self._priorities(current)
        assignments = self.balancer.placement.resolved()
        outcome = None if assignments is None else self.evaluator.evaluate(assignments, priority, offset)
        if outcome is not None and self._accepts(outcome.value - current.value, temperature):
            return ListSchedule(self.balancer.assignments(), priority, offset, outcome)
        self.balancer.undo(moved)
        return None

    def _accepts(self, loss: int, temperature: float) -> bool:
        return loss <= 0 or (temperature > 0 and self.rng.random() < exp(-loss / temperature))

    def _late(self, current: ListSchedule) -> int | None:
        """Return, in some of the calls, the job that ends last or one that shares a GPU with it; else None."""
        if self.rng.random() >= self.params.focus_share:
            return None
        ends = current.outcome.ends
        last = max(range(len(ends)), key=ends.__getitem__)
        gpu = self.rng.choice(current.outcome.jobs[last].gpus)
        return self.rng.choice(list(self.balancer.placement.on_gpu[gpu]))

    def _priorities(self, current: ListSchedule) -> tuple[list[float], list[int]]:
        """Draw one or two priority factors anew; sometimes let a job start only when another one begins or ends."""
        rng, count = self.rng, len(current.assignments)
        priority, offset = list(current.priority), list(current.offset_us)
        for _ in range(rng.choice((1, 1, 2))):
            priority[rng.randrange(count)] = rng.uniform(_LEAST_PRIORITY, _MOST_PRIORITY)
        if rng.random() < 0.3:
            other, outcome = rng.randrange(count), current.outcome
            offset[rng.randrange(count)] = rng.choice((0, 0, outcome.begins[other], outcome.ends[other]))
        return priority, offset


class Annealer:
    """All annealings of a search, each as long as the ones before were in vain."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._effort = Effort(context.params.driver.longest if context.cyclic else _LONGEST)

    def run(self, balancer: LoadBalancer, start: ListSchedule, brief: bool = False) -> Candidate:
        """Anneal a list schedule, then the sequence of its operations, and return the best plan."""
        context, params = self.context, self.context.params.list_annealing
        context.propose_list(start)
        steps = max(5, min(_MOST_STEPS, params.operations // context.evaluator.operations_a_look))
        before, longer = context.incumbent, _BRIEF if brief else self._effort.length
        best = ListAnnealing(context, balancer).run(
            start, round(longer * steps), context.rng.choice(params.temperatures)
        )
        found, sequences = context.candidate(best), context.shared(SequenceAnnealing)
        if sequences.fits and not context.budget.over():
            after = sequences.anneal(found.timetable)
            found = after if after.better_than(found) else found
        if not brief:
            self._effort.spent(found.better_than(before))
        return found

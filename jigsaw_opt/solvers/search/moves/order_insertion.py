"""Insertion in order: the order in which jobs are inserted is annealed, and the best plan's sequence after that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.greedy.order_insertion import OrderInsertion, affordable, smith_order
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing

_VISIT = 1.5e-7
"""Deterministic seconds that a block or transfer counts as which is tried, about what compiled code takes for it."""
_SLICE = 0.2
"""Share of the limits after which an annealing is cut off, so that other moves have their turn under a short limit."""
_VISITS, _STEPS = 5_000_000, 300
"""Blocks and transfers tried in one annealing, and its steps for each job, at most; calls in vain make it longer."""
_PROFILE_SHARE = 0.3
"""How often a job changes its level profile instead of its place, which has many more values."""
_REACH = 0.1
"""Mean distance to a place nearby, as a share of all jobs: such a step leaves most of the order as it is."""
_SLACK = 0.001
"""What the objective of the first jobs may lose, beyond what all jobs may, before insertion is given up: the jobs that
follow may win a little back."""
_STEP_VISITS = 500
"""Fixed work of a step, as a number of operations that are tried in the same time."""


@dataclass(frozen=True, slots=True)
class _Inserted:
    """Jobs inserted in an order.

    `choices`: by job, which level profile it asks for. `partial`: by position, the objective of the jobs up to there.
    """

    order: list[int]
    choices: list[int]
    partial: list[int]

    @property
    def value(self) -> int:
        """Return the objective."""
        return self.partial[-1]


class AnnealOrder:
    """Anneals the order of insertion and the level profiles of jobs; every call goes on from the best one so far."""

    name: ClassVar[str] = "order_insertion"

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.params = context, context.rng, context.params.order_insertion
        jobs = range(len(context.operations.jobs))
        choices = [context.data.shapes(index) for index in jobs]
        self._insertion = OrderInsertion(context.data, choices)
        self._several = [index for index in jobs if len(choices[index]) > 1]
        self._counts = list(map(len, choices))
        self._best: _Inserted | None = None
        self._effort = Effort(context.params.driver.longest)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether completions are weighted, and an insertion of all jobs takes little time."""
        weighted = context.evaluator.weighted and not context.data.layout.held
        return weighted and affordable(context.operations)

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Anneal the order, then the sequence of the resulting plan.

        The best plan found, or None where no order finds room for all jobs.
        """
        before = self._start(incumbent)
        if before is None:
            return None
        with budget.slice(_SLICE):
            self._best = self._annealed(before, self._effort.length, budget)
        found = self._plan(self._best)
        sequences = self.context.shared(SequenceAnnealing)
        if sequences.fits and not budget.over():
            after = sequences.anneal(found.timetable)
            found = after if after.better_than(found) else found
        self._effort.spent(found.better_than(incumbent))
        return found

    def _start(self, incumbent: Candidate | None) -> _Inserted | None:
        """Return the better of the best order so far and that of the best plan.

        At first Smith's order replaces the former.
        """
        choices = [0] * len(self._counts) if self._best is None else self._best.choices
        orders = [smith_order(self.context.data) if self._best is None else self._best.order]
        if incumbent is not None:
            orders.append(_order_of(incumbent.timetable))
        tried = [self._inserted(order, choices) for order in orders]
        return min((one for one in tried if one is not None), key=lambda one: one.value, default=None)

    def _inserted(self, order: list[int], choices: list[int], limits: list[int] | None = None) -> _Inserted | None:
        """Insert all jobs; return None where the objective is above a limit or a job finds no room."""
        insertion = self._insertion
        insertion.ask(choices)
        value = insertion.insert(order, limits)
        return None if value >= insertion.infinity else _Inserted(order, choices, insertion.partial())

    def _annealed(self, start: _Inserted, length: float, budget: Budget) -> _Inserted:
        """Return the best order that some steps lead to.

        The annealing ends after `length` times the usual number of steps, or of visited operations.
        """
        hot = self.rng.choice(self.params.temperatures)
        best = current = start
        step_share = 1 / (length * _STEPS * len(start.order))
        done = 0.0
        while done < 1.0 and not budget.over():
            loss = hot * (1 - done) ** 2 * self.rng.expovariate(1.0)
            order, choices, last = self._changed(current)
            after = self._inserted(order, choices, self._limits(current, last, round(loss * current.value)))
            current = after or current
            if current.value < best.value:
                best = current
            visited = self._insertion.visits() + _STEP_VISITS
            done += max(step_share, visited / (length * _VISITS))
            budget.spend(visited * _VISIT)
        return best

    def _changed(self, current: _Inserted) -> tuple[list[int], list[int], int]:
        """Return an order in which a job has another place or level profile, and the last position that changed.

        Half of all places are anywhere, the others near the old one.
        """
        rng, order, choices, count = self.rng, list(current.order), current.choices, len(current.order)
        at = rng.randrange(count)
        if self._several and rng.random() < _PROFILE_SHARE:
            index, choices = rng.choice(self._several), list(choices)
            choices[index] = rng.randrange(self._counts[index])
            return order, choices, order.index(index)
        to = rng.randrange(count)
        if rng.random() < 0.5:
            reach = 1 + round(rng.expovariate(1.0) * _REACH * count)
            to = min(count - 1, max(0, at + rng.choice((-reach, reach))))
        order.insert(to, order.pop(at))
        return order, choices, max(at, to)

    def _limits(self, current: _Inserted, last: int, loss: int) -> list[int]:
        """Return limits of the objective by position: behind all changes, little more than it is at present."""
        slack = loss + round(_SLACK * current.value)
        limits = [self._insertion.infinity] * last + [value + slack for value in current.partial[last:]]
        limits[-1] = current.value + loss
        return limits

    def _plan(self, found: _Inserted) -> Candidate:
        """Return the plan of an order."""
        self._inserted(found.order, found.choices)
        candidate = self.context.candidate(self._insertion.timetable())
        self.context.propose(candidate)
        return candidate


def _order_of(plan: Timetable) -> list[int]:
    """Return the jobs in the order in which they begin in a plan."""
    begins = [job.start_us for job in plan.jobs]
    return sorted(range(len(begins)), key=begins.__getitem__)

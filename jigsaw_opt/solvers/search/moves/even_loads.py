"""Placements with levels whose loads are evened out by annealing; a schedule says what each is worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.levels import counts, dealt
from jigsaw_opt.solvers.placement.state import fullest_us
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.load_search import LoadSearch, Placed
from jigsaw_opt.solvers.search.moves.list_annealing import draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule

_STEPS, _MOST_STEPS = (200, 1_000, 10_000), 1_000_000
"""Steps of an annealing for each worker, one of which is drawn, and at most. A few keep most of the order's worth."""
_SCOPES = 0, 3, 5, 5
"""What may change: levels, GPUs as well, servers as well; one is drawn."""
_STEP = 5e-7
"""Deterministic seconds that a step counts as."""
_TEMPERATURES = 3e-4, 1e-3, 3e-3, 1e-2
"""Temperatures at which an annealing begins; one is drawn."""
_LINK_PRICES = {"finite": (0.003, 0.03, 0.3), "cyclic": (0.001, 0.01, 0.1)}
"""Prices of a link that is taken all the time, where a GPU at twice the target costs 1, by horizon; one is drawn. How
hard links are to schedule differs between instances; in a period, jobs that wait for them seldom keep others waiting.
"""
_FULL = 0.97
"""Least share of the objective that the fullest GPU or link, or the longest job, takes up: else loads do not bound it,
and evener ones gain nothing."""
_TARGETS = 0.0, 0.25
"""Least and most share of the gap by which the target is above the bound."""
_CALL, _LONGEST = 0.6, 4.0
"""Deterministic seconds after which a call ends, and how much longer it becomes in vain, at most."""


class EvenLoads:
    """Makes the loads of the best plan even, and anneals the order of operations after every change."""

    name: ClassVar[str] = "even_loads"

    def __init__(self, context: Context) -> None:
        self.context, self.rng = context, context.rng
        self._loads = LoadSearch(context.data, context.rng)
        self._effort = Effort(_LONGEST)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether loads bound the objective, and sequences are annealed at all."""
        return context.operations.objective != "weighted_completion" and context.shared(SequenceAnnealing).fits

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Change the placement of the best plan again and again.

        The best plan found, or None where there is none to begin with, or one that loads do not bound.

        `incumbent`: the best plan so far; None before there is any.
        """
        if incumbent is None:
            return None
        sequences, enough = self.context.shared(SequenceAnnealing), budget.work + _CALL * self._effort.length
        best = sequences.sequencing.given(incumbent.timetable)
        if fullest_us(best.assignments) < _FULL * best.value:
            return None
        while budget.work < enough and not budget.over():
            found = self._scheduled(best, self._evened(best, budget))
            best = found if found.value < best.value else best
        self._effort.spent(best.value < incumbent.value)
        return sequences.proposed(best)

    def _evened(self, schedule: SequencedSchedule, budget: Budget) -> list[Placed]:
        """Return the placement of a schedule with its loads evened out."""
        rows = partial(self.context.shared(SequenceAnnealing).sequencing.rows, schedule)
        placed = [counts(own.gpus, rows(index)) for index, own in enumerate(schedule.assignments)]
        bound = min(self.context.solve_state.bound, schedule.value)
        target = bound + round(self.rng.uniform(*_TARGETS) * (schedule.value - bound))
        steps = min(_MOST_STEPS, round(self.rng.choice(_STEPS) * self._loads.workers))
        temperature = self.rng.choice(_TEMPERATURES)
        price = self.rng.choice(_LINK_PRICES[self.context.operations.horizon])
        return self._loads.annealed(
            placed,
            steps,
            temperature,
            max(1, target),
            price,
            self.rng.choice(_SCOPES),
            lambda n: budget.spend(n * _STEP),
        )

    def _scheduled(self, before: SequencedSchedule, placed: Sequence[Placed]) -> SequencedSchedule:
        """Return the better of the order of a schedule at a placement, and of its list schedule, both annealed."""
        context, sequences = self.context, self.context.shared(SequenceAnnealing)
        search = sequences.sequencing
        changed = self._assignments(before, placed)
        best = sequences.annealed(search.moved(before, changed))
        balancer = context.shared(Placing).balancer(1.0)
        balancer.adopt([changed.get(index, old) for index, old in enumerate(before.assignments)])
        schedule = None if context.budget.over() else draft(context, balancer)
        if schedule is not None:
            other = sequences.annealed(search.given(context.candidate(schedule).timetable))
            best = other if other.value < best.value else best
        return best

    def _assignments(self, before: SequencedSchedule, placed: Sequence[Placed]) -> dict[int, Assignment]:
        """Return the jobs that are elsewhere than in a schedule, or at other levels, or have other caps.

        Each GPU is in the slot that it has had, if the job was there.
        """
        data, search = self.context.data, self.context.shared(SequenceAnnealing).sequencing
        places = []
        for at, own in zip(placed, before.assignments, strict=True):
            new = iter([gpu for gpu in at if gpu not in own.gpus])
            places.append([gpu if gpu in at else next(new) for gpu in own.gpus])
        found = {}
        for index, (own, caps) in enumerate(zip(before.assignments, data.caps(places), strict=True)):
            gpus, at, rows = places[index], placed[index], search.rows(before, index)
            if at != counts(own.gpus, rows):
                rows = [[*row] for row in dealt(own.job, [at[gpu] for gpu in gpus]).rows]
            elif (own.caps or [own.job.levels] * len(caps)) == caps:
                continue
            found[index] = data.planned(index, gpus, rows, caps, data.demands[index])
        return found

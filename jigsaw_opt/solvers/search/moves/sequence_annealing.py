"""What the order of pieces is annealed for: a plan at its placement, or a search among placements; and what is kept."""

from __future__ import annotations

from functools import cached_property

from jigsaw_opt.problem.timetable import Timetable, objective_of
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.relocation import Relocation
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch

__all__ = ["SequenceAnnealing"]

_WORK_OF_PIECE = {"finite": 2e-8, "cyclic": 6e-8}
"""Deterministic seconds that a piece in a sweep counts as."""
_MENDED = {"finite": 4_000_000, "cyclic": 1_000_000}
"""Pieces swept to mend the order of a plan."""
_MEND_HEATS = (0.003, 0.001, 0.0003)
_RELOCATIONS = 300
"""Placements tried in a relocation, at first."""
_RELOCATION_HEATS = (0.003, 0.01, 0.03)
_LONGER, _LONGEST = 1.5, 30.0
"""By what factor it takes longer after each time that it found no better plan, and at most."""
_OTHERS = 5
_MOST_WAITS = 2_000_000
"""Above so many pairs of a block and a transfer that waits for it a sweep takes too long to be of use."""


class SequenceAnnealing:
    """Plans of a finite horizon made better by another order of their pieces.

    Parameters
    ----------
    context
        The search.

    Attributes
    ----------
    work
        Deterministic seconds so far.
    fits
        Whether sequences are annealed at all: there are not too many pieces.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.control, self.rng = context, context.control, context.rng
        self.work = 0.0
        waits = sum(job.iterations * job.slots * len(job.transfers) for job in context.pieces.jobs)
        self.fits = waits <= _MOST_WAITS
        self._others: list[tuple[int, Timetable]] = []
        self._farther = 1.0

    @cached_property
    def _sequencing(self) -> SequenceSearch:
        return SequenceSearch(self.context.data, self.rng)

    def anneal(self, plan: Timetable) -> None:
        """A plan with its pieces in another order; it is kept as one of the others where it is not the best one."""
        start = self._sequencing.given(plan)
        steps = max(1, _MENDED[self.context.pieces.horizon] // self._sequencing.size)
        after = self._sequencing.anneal(start, start.spots, steps, self.rng.choice(_MEND_HEATS), self._swept)
        if not self._offer(after):
            self._remember(self._sequencing.timetable(after))

    def relocate(self, balancer: LoadBalancer, plan: Timetable) -> None:
        """A plan with some of its jobs elsewhere: the longer the more often that was in vain."""
        before, relocation = self.control.objective, Relocation(balancer, self._sequencing, self.rng)
        steps = round(self._farther * _RELOCATIONS)
        temperature, start = self.rng.choice(_RELOCATION_HEATS), self._sequencing.given(plan)
        after = relocation.run(start, steps, temperature, self._offer, self._swept)
        self.anneal(self._sequencing.timetable(after))
        fruitless = self.control.objective == before
        self._farther = min(_LONGEST, _LONGER * self._farther) if fruitless else 1.0

    def other(self) -> Timetable | None:
        """The best of the plans at other placements than the best plan's; each is given once."""
        return self._others.pop(0)[1] if self._others else None

    def _offer(self, schedule: SequencedSchedule) -> bool:
        """Keep a schedule if it is better than the incumbent; says whether it is."""
        objective = self.control.objective
        if objective is not None and schedule.value >= objective:
            return False
        return self.control.offer(self._sequencing.timetable(schedule))

    def _remember(self, plan: Timetable) -> None:
        known = [self.control.best, *(other for _, other in self._others)]
        places = [[job.gpus for job in one.jobs] for one in known if one is not None]
        if [job.gpus for job in plan.jobs] not in places:
            self._others.append((objective_of(self.control.pieces, plan.jobs, plan.period_us), plan))
            self._others = sorted(self._others, key=lambda one: one[0])[:_OTHERS]

    def _swept(self, pieces: int) -> bool:
        work = pieces * _WORK_OF_PIECE[self.context.pieces.horizon]
        self.work += work
        return self.context.budget.spend(work)

"""Jobs inserted among others on the cyclic horizon, at the old period or the least longer one with room."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.state import PartialPlacement, fullest_us
from jigsaw_opt.solvers.search.cyclic.candidate_table import FixedPolicy
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import TRIES_PER_JOB, ModuloInsertion
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob

_FEW = 10
"""Largest number of jobs that are inserted among the others; with more of them, the others need not stay either."""
_HALVINGS = 4
"""Times that the room between a period without a plan and one with a plan is halved: to a sixteenth of it."""
_FIRST_STRETCH = 1 / 128
"""Share of the period by which it is stretched, as often as jobs find no room: mostly little is missing."""


class MixedPolicy:
    """Offers by which some jobs keep the assignment that they have, and the others choose theirs when they are
    inserted.

    `assignments`: where every job is, or the choosing ones begin with. `free`: numbers of the jobs that choose.
    """

    def __init__(
        self, data: ProblemData, assignments: Sequence[Assignment], rng: random.Random, free: frozenset[int]
    ) -> None:
        self._assignments, self.free, self.generator = assignments, free, CandidateGenerator(data, rng)

    def assignments(self, placement: PartialPlacement, index: int) -> Iterator[Assignment]:
        """Yield assignments that memory admits now.

        The neighbours of an unassigned job may have come back with other levels.
        """
        if index not in self.free:
            if placement.admits(index, self._assignments[index]):
                yield self._assignments[index]
            return
        for gpus in self.generator.of(placement, index, thorough=True):
            assignment = placement.assignment(index, gpus)
            if assignment is not None:
                yield assignment

    def target(self, index: int) -> Assignment:
        """Return where a job is, or would be if it were alone."""
        return self._assignments[index]


def repaired(
    data: ProblemData,
    kept: Mapping[int, ScheduledJob],
    fixed: Mapping[int, Sequence[int]],
    period: int,
    rng: random.Random,
    stop: Callable[[], bool],
) -> Iterator[Timetable]:
    """Yield plans in which the kept jobs stay at their places, each better than the last one."""
    assignments = _assignments(data, kept, fixed)
    if assignments is None:
        return
    free = frozenset(range(len(assignments))).difference(kept, fixed)
    weights = [sum(map(sum, assignment.exchange)) for assignment in assignments]
    unassigned = [index for index in range(len(assignments)) if index not in kept]

    def attempt(stretch: int) -> Timetable | None:
        """Insert the unassigned jobs among the others where they are few, else all jobs anew."""
        for stay in (kept, {}) if len(unassigned) <= _FEW else ({},):
            insertion = ModuloInsertion(data, MixedPolicy(data, assignments, rng, free), period + stretch, rng)
            cut = rng.randrange(period)
            for index, scheduled in stay.items():
                insertion.schedule.add(index, _stretched(scheduled, period, stretch, cut))
            left = [index for index in range(len(assignments)) if index not in stay]
            plan = insertion.insert_all(left, weights, TRIES_PER_JOB * len(left) if stay else _FEW, stop)
            if plan is not None or not unassigned:
                return plan
        return None

    plan = attempt(0)
    if plan is not None or not unassigned:
        yield from () if plan is None else (plan,)
        return
    # The load where the jobs are now says how much is needed at least.
    low = max(0, min(fullest_us(assignments), 2 * period) - period - 1) if not free else 0
    high = low + max(1, round(period * _FIRST_STRETCH))
    # An empty stretch as long as all unassigned jobs in turn has room for them; memory may never have.
    most = 2 * period + sum(assignments[index].iteration_us * assignments[index].job.iterations for index in unassigned)
    while (plan := attempt(high)) is None:
        if stop() or high > most:
            return
        low, high = high, 2 * high - low
    yield plan
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        if middle == low or stop():
            return
        plan = attempt(middle)
        if plan is None:
            low = middle
        else:
            high = middle
            yield plan


def reinserted(
    data: ProblemData, assignments: Sequence[Assignment], best: int, rng: random.Random, stop: Callable[[], bool]
) -> Iterator[Timetable]:
    """Yield plans of a whole placement with shorter periods than `best`, each better than the last one."""
    weights = [sum(map(sum, assignment.exchange)) for assignment in assignments]
    low, high = min(best, fullest_us(assignments)) - 1, best
    for _ in range(_HALVINGS):
        period = (low + high) // 2
        if period == low or stop():
            return
        plan = ModuloInsertion(data, FixedPolicy(assignments), period, rng).insert_all(
            range(len(assignments)), weights, _FEW, stop
        )
        if plan is None:
            low = period
        else:
            high = period
            yield plan


def _assignments(
    data: ProblemData, kept: Mapping[int, ScheduledJob], fixed: Mapping[int, Sequence[int]]
) -> list[Assignment] | None:
    """Return where the kept and the fixed jobs are, and where the others would be alone; None without a place."""
    placement, generator = PartialPlacement(data), CandidateGenerator(data, random.Random(0))
    assignments = []
    for index in range(len(data.operations.jobs)):
        if index in kept:
            assignments.append(kept[index].assignment)
            continue
        choices = [fixed[index]] if index in fixed else generator.of(placement, index, thorough=True)
        assignment = next((found for gpus in choices if (found := placement.assignment(index, gpus)) is not None), None)
        if assignment is None:
            return None
        assignments.append(assignment)
    return assignments


def _stretched(scheduled: ScheduledJob, period: int, stretch: int, cut: int) -> ScheduledJob:
    """Return a job after `stretch` microseconds are inserted at a moment of every period; it keeps its durations."""

    def later(start: int) -> int:
        return start + stretch * ((start - cut) // period + 1)

    if not stretch:
        return scheduled
    return replace(
        scheduled,
        blocks=[[later(start) for start in row] for row in scheduled.blocks],
        transfers=[[later(start) for start in row] for row in scheduled.transfers],
        start=later(scheduled.start),
        end=later(scheduled.end - 1) + 1,
    )

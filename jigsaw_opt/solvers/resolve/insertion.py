"""Where the jobs of an old plan go when they are inserted again, and cyclic plans of shorter and longer periods."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion


class OldPlaces:
    """Offers by which jobs go back to where they were, as far as they may.

    `bound`: assignments of the jobs that keep theirs, by number of the job. `fixed`: GPUs of others that keep theirs.
    `old_gpus`: GPUs on which others are tried first. `targets`: by job, where it would be if it were alone; None where
    it has no place.
    """

    def __init__(
        self,
        data: ProblemData,
        rng: random.Random,
        bound: Mapping[int, Assignment],
        fixed: Mapping[int, Sequence[int]],
        old_gpus: Mapping[int, Sequence[int]],
    ) -> None:
        self.bound, self.fixed, self.old_gpus = bound, fixed, old_gpus
        self._generator, empty = CandidateGenerator(data, rng), PartialPlacement(data)
        jobs = range(len(data.operations.jobs))
        self.targets = [next(self.assignments(empty, index), None) for index in jobs]

    def assignments(self, placement: PartialPlacement, index: int) -> Iterator[Assignment]:
        """Yield assignments that memory admits now.

        The neighbours of an unassigned job may have come back with other levels.
        """
        if index in self.bound:
            if placement.admits(index, self.bound[index]):
                yield self.bound[index]
            return
        first = [gpus for gpus in (self.fixed.get(index, self.old_gpus.get(index)),) if gpus is not None]
        others = () if index in self.fixed else self._generator.of(placement, index, thorough=True)
        for gpus in chain(first, others):
            assignment = placement.assignment(index, gpus)
            if assignment is not None:
                yield assignment

    def target(self, index: int) -> Assignment:
        """Return where a job that has a place would be if it were alone."""
        found = self.targets[index]
        assert found is not None, "no job without a place is inserted"
        return found


def shorter(
    attempt: Callable[[int], JobInsertion | None], low: int, high: int, finest: int, stop: Callable[[], bool]
) -> Iterator[JobInsertion]:
    """Yield what an attempt finds at shorter and shorter periods between one without a plan and one with a plan.

    It ends where these are no further apart than `finest` microseconds.
    """
    while high - low > max(1, finest) and not stop():
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            low = middle
        else:
            high = middle
            yield found


def stretched(scheduled: ScheduledJob, period: int, stretch: int, cut: int) -> ScheduledJob:
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

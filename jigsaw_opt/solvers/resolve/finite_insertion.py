"""Jobs inserted on the finite horizon, and inserted again: ruin and recreate."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule

_MOST_AWAY = 4
"""Jobs that are removed at once to make room, at most: of more, chance seldom inserts all again."""
_MOST_NEAR = 12
"""Jobs that these are drawn from in a step: those on its GPUs first, then those on its links."""


class FiniteInsertion:
    """A partial schedule with the means to change it.

    `fixed`: GPUs of the jobs that may not choose them, by number of the job.
    """

    def __init__(self, schedule: PartialSchedule, fixed: Mapping[int, Sequence[int]], rng: random.Random) -> None:
        self.schedule, self.fixed, self.rng = schedule, fixed, rng
        self.generator = CandidateGenerator(schedule.data, rng)
        self.weighted = schedule.data.operations.objective == "weighted_completion"

    @property
    def value(self) -> int:
        """Return the objective of the scheduled jobs."""
        return self._value([scheduled for scheduled in self.schedule.scheduled if scheduled is not None])

    def insert(self, index: int, old: Assignment | None = None, latest: int | None = None) -> bool:
        """Insert a job where it ends first; return whether there was room.

        `latest`: it has to end by then; None for no limit.
        """
        schedule, best = self.schedule, None
        begin = schedule.data.operations.jobs[index].release_us
        for assignment in self._assignments(index, old):
            scheduled = schedule.inserted(index, assignment, begin, latest)
            if scheduled is not None and (best is None or scheduled.end < best.end):
                best, latest = scheduled, scheduled.end
        if best is not None:
            schedule.add(index, best)
        return best is not None

    def ruin_and_recreate(self, index: int) -> bool:
        """Insert a job that memory has no room for, by removing some jobs and inserting them again after it."""
        scheduled = [other for other, each in enumerate(self.schedule.scheduled) if each is not None]
        ejected = self.rng.sample(scheduled, min(len(scheduled), self.rng.randint(1, _MOST_AWAY)))
        return self._reinsert([index], ejected, None)

    def step(self, first: int) -> bool:
        """Insert a job and some near it again; return whether the schedule got better.

        The change is kept where it is no worse.
        """
        near = self._near(first)
        ejected = [first, *self.rng.sample(near, min(len(near), self.rng.randint(0, _MOST_AWAY)))]
        before = self._score(ejected)
        old = {index: self._scheduled(index) for index in ejected}
        latest = None if self.weighted else before[0]
        if not self._reinsert([], ejected, latest):
            return False
        after = self._score(ejected)
        if after > before:
            for index in ejected:
                self.schedule.remove(index)
            for index, scheduled in old.items():
                self.schedule.add(index, scheduled)
        return after < before

    def last(self) -> int:
        """Return the job that ends last, or with weighted ends any."""
        scheduled = [index for index, each in enumerate(self.schedule.scheduled) if each is not None]
        return (
            self.rng.choice(scheduled)
            if self.weighted
            else max(scheduled, key=lambda index: self._scheduled(index).end)
        )

    def _reinsert(self, new: Sequence[int], ejected: Sequence[int], latest: int | None) -> bool:
        """Remove jobs and insert the new ones and them; restore the schedule where one finds no room."""
        old = [(index, self.schedule.remove(index)) for index in ejected]
        assignments = {index: scheduled.assignment for index, scheduled in old}
        order = list(ejected)
        if self.rng.random() < 0.7:
            self.rng.shuffle(order)
        done: list[int] = []
        for index in (*new, *order):
            if not self.insert(index, assignments.get(index), latest):
                break
            done.append(index)
        if len(done) == len(new) + len(order):
            return True
        for index in done:
            self.schedule.remove(index)
        for index, scheduled in old:
            self.schedule.add(index, scheduled)
        return False

    def _assignments(self, index: int, old: Assignment | None) -> Iterator[Assignment]:
        placement, frozen = self.schedule.placement, self.schedule.frozen[index]
        if frozen is not None:
            if placement.admits(index, frozen.scheduled.assignment):
                yield frozen.scheduled.assignment
            return
        if index in self.fixed:
            choices: Iterator[Sequence[int]] = iter([self.fixed[index]])
        else:
            choices = self._choices(index, old)
        for gpus in choices:
            assignment = placement.assignment(index, gpus)
            if assignment is not None:
                yield assignment

    def _choices(self, index: int, old: Assignment | None) -> Iterator[Sequence[int]]:
        if old is not None:
            yield old.gpus
        yield from self.generator.of(self.schedule.placement, index, thorough=True)

    def _near(self, first: int) -> list[int]:
        """Return the jobs that share GPUs or links with a job, those on its GPUs first."""
        placement, assignment = self.schedule.placement, self._scheduled(first).assignment
        found = dict.fromkeys(other for gpu in assignment.gpus for other in placement.on_gpu[gpu])
        found.update(dict.fromkeys(other for link in assignment.links for other in placement.on_link[link]))
        return [other for other in found if other != first][:_MOST_NEAR]

    def _score(self, jobs: Sequence[int]) -> tuple[int, int]:
        """Return what some jobs add to the objective, and the sum of their ends."""
        scheduled = [self._scheduled(index) for index in jobs]
        return self._value(scheduled), sum(each.end for each in scheduled)

    def _value(self, scheduled: Sequence[ScheduledJob]) -> int:
        if self.weighted:
            return sum(each.job.weight * each.end for each in scheduled)
        return max((each.end for each in scheduled), default=0)

    def _scheduled(self, index: int) -> ScheduledJob:
        scheduled = self.schedule.scheduled[index]
        assert scheduled is not None, "only jobs that are laid are looked at"
        return scheduled

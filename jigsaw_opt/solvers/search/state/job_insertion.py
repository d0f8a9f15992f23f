"""Jobs inserted one after the other on either horizon, and ruin and recreate where some find no room."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile

from jigsaw_opt.problem.calendar import Calendar
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.search.cyclic.candidate_table import InsertionPolicy
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob, least_length, uncontended_profile
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule

_OFFSETS = 24
"""Offsets in the period that are tried for a job; a full link has hundreds, and most of them differ little."""
_FEW = 3
"""So many jobs may be left unassigned on the way, even where fewer were before: a way out may lead through worse."""
_MOST_UNASSIGNED = 0.25
"""With a larger share of the jobs unassigned, the attempt is given up at once: ruin and recreate gains a few jobs."""
_MOST_AWAY, _MOST_NEAR = 4, 12
"""Jobs that a step inserts again beside one, at most, and those near it that these are drawn from."""
_SHUFFLED = 0.7
"""Share of the steps that insert the jobs in a random order, and not the one that the step is about first."""


class JobInsertion:
    """A partial schedule into which jobs are inserted.

    `policy`: where the jobs may be inserted. `count`: told, job by job, for how many blocks and transfers room was
    looked for.
    """

    def __init__(
        self,
        schedule: PartialSchedule,
        policy: InsertionPolicy,
        rng: random.Random,
        count: Callable[[int], object] = lambda operations: None,
    ) -> None:
        self.schedule, self.policy, self.rng, self.params = schedule, policy, rng, schedule.data.params.insertion
        self.weighted = schedule.data.operations.objective == "weighted_completion"
        self._count, self._looked_at = count, 0

    def insert_all(
        self, jobs: Iterable[int], weights: Sequence[float], tries: int, stop: Callable[[], bool]
    ) -> Timetable | None:
        """Return the plan with all jobs inserted, or None where some found no room.

        `stop`: asked after every job and every try; once it holds, the attempt is given up.
        """
        return None if self.insert(jobs, weights, tries, stop) else self.schedule.timetable()

    def insert(
        self,
        jobs: Iterable[int],
        weights: Sequence[float],
        tries: int,
        stop: Callable[[], bool],
        held: Collection[int] = (),
    ) -> list[int]:
        """Insert jobs; return those that found no room, or for which there was no time.

        Room is made by ruin and recreate with ejection counts, as fleets of vehicles are made smaller (Christiaens and
        Vanden Berghe, 2020). Other jobs may be left out instead of the unassigned ones, where these have been left out
        more often.

        `tries`: fruitless tries of ruin and recreate, without fewer unassigned jobs, until the attempt is given up.
        `stop`: asked after every job and every try; once it holds, the attempt is given up.
        """
        unassigned: list[int] = []
        coming = sorted(jobs, key=lambda index: -weights[index])
        for number, index in enumerate(coming):
            if stop():
                return unassigned + coming[number:]
            if not self._insert(index):
                unassigned.append(index)
        ejection_counts = [1] * len(weights)
        fewest, left = len(unassigned), tries
        while unassigned and fewest <= max(_FEW, _MOST_UNASSIGNED * len(weights)) and left > 0 and not stop():
            unassigned = self._ruin_and_recreate(unassigned, ejection_counts, weights, held)
            fewest, left = (len(unassigned), tries) if len(unassigned) < fewest else (fewest, left - 1)
            for index in unassigned:
                ejection_counts[index] += 1
        return unassigned

    def step(self, first: int) -> bool:
        """Insert a job and some near it again where that is no worse; return whether the objective got better.

        It is for the finite horizon.
        """
        placement, own = self.schedule.placement, self.schedule.scheduled[first]
        if own is None:
            raise ValueError(f"job {first} is not inserted")
        found = dict.fromkeys(other for gpu in own.assignment.gpus for other in placement.on_gpu[gpu])
        found |= dict.fromkeys(other for link in own.assignment.links for other in placement.on_link[link])
        near = [other for other in found if other != first][:_MOST_NEAR]
        ejected = [first, *self.rng.sample(near, min(len(near), self.rng.randint(0, _MOST_AWAY)))]
        before, old = self.score(ejected), self._ejected(ejected)
        if self.rng.random() < _SHUFFLED:
            self.rng.shuffle(ejected)
        latest = None if self.weighted else before[0]
        done = list(takewhile(lambda index: self._insert(index, latest), ejected))
        if len(done) == len(ejected) and (after := self.score(ejected)) <= before:
            return after < before
        self._restore(done, old)
        return False

    def score(self, jobs: Iterable[int]) -> tuple[int, int]:
        """Return what some jobs add to the objective of the finite horizon, and the sum of their ends."""
        scheduled = [own for index in jobs if (own := self.schedule.scheduled[index]) is not None]
        total = sum(each.end for each in scheduled)
        if self.weighted:
            return sum(each.job.weight * each.end for each in scheduled), total
        return max((each.end for each in scheduled), default=0), total

    def _insert(self, index: int, latest: int | None = None) -> bool:
        """Insert a job where it ends first, or modulo the period where it waits least: at once where it never waits.

        `latest`: latest end on the finite horizon, in microseconds; None for no limit.
        """
        best, least = None, float("inf")
        for assignment in self.policy.assignments(self.schedule.placement, index):
            alone = assignment.iteration_us * assignment.job.iterations
            if self.schedule.period is None:
                scheduled = self._looked(index, assignment, assignment.job.release_us, latest)
                latest = latest if scheduled is None else scheduled.end - 1
                best = scheduled or best
                continue
            scheduled = self._best(index, assignment, alone, self.schedule.period)
            if scheduled is not None and (share := (scheduled.end - scheduled.start) / alone) < least:
                best, least = scheduled, share
                if share <= 1:
                    break
        self._count(self._looked_at)
        self._looked_at = 0
        if best is not None:
            self.schedule.add(index, best)
        return best is not None

    def _looked(
        self, index: int, assignment: Assignment, begin: int, latest: int | None, channel: Calendar | None = None
    ) -> ScheduledJob | None:
        """Return the job as it would be inserted, which counts as work."""
        job = assignment.job
        self._looked_at += job.iterations * (job.slots + len(job.transfers))
        return self.schedule.inserted(index, assignment, begin, latest, channel)

    def _best(self, index: int, assignment: Assignment, alone: int, period: int) -> ScheduledJob | None:
        """Return the job inserted at the offset at which it takes least time, or at the first one without waiting time.

        Offsets are tried in the order of what the links alone make of them, as long as that is better.
        """
        channel = self.schedule.channel(assignment)
        best, shortest = None, period + 1
        for least, offset in self._offsets(assignment, channel, period):
            if least >= shortest:
                break
            scheduled = self._looked(index, assignment, offset, offset + shortest - 1, channel)
            if scheduled is not None and scheduled.end - scheduled.start < shortest:
                best, shortest = scheduled, scheduled.end - scheduled.start
                if shortest <= alone:
                    break
        return best

    def _offsets(self, assignment: Assignment, channel: Calendar, period: int) -> list[tuple[int, int]]:
        """Return offsets at which the first transfer or a block follows another one at once, and 0.

        Each with the time that the job takes from there as far as its links are free, shortest first.
        """
        ready = max(table[0] for table in assignment.tables)
        offsets = {0}
        offsets.update((end - ready) % period for end in channel.ends)
        for gpu in assignment.gpus[:1]:
            offsets.update(end % period for end in self.schedule.gpus[gpu].ends)
        found = sorted(offsets)
        some = found if len(found) <= _OFFSETS else sorted(self.rng.sample(found, _OFFSETS))
        profile, job = uncontended_profile(assignment), assignment.job
        self._looked_at += len(some) * job.iterations * len(job.transfers)
        ranked = ((least_length(assignment, profile, channel, offset), offset) for offset in some)
        return sorted((least, offset) for least, offset in ranked if least is not None and least <= period)

    def _ejected(self, jobs: Iterable[int]) -> list[tuple[int, ScheduledJob]]:
        return [(index, self.schedule.remove(index)) for index in jobs]

    def _restore(self, done: Iterable[int], old: Iterable[tuple[int, ScheduledJob]]) -> None:
        """Put jobs back where they were, in the place of those that were inserted meanwhile."""
        self._ejected(done)
        for index, scheduled in old:
            self.schedule.add(index, scheduled)

    def _ruin_and_recreate(
        self, unassigned: Sequence[int], ejection_counts: Sequence[int], weights: Sequence[float], held: Collection[int]
    ) -> list[int]:
        """Eject jobs where an unassigned one might go, and insert jobs again; return the unassigned jobs.

        Nothing changes where more than a few more would be unassigned, or such as have been ejected more often in sum.
        """
        rng = self.rng
        first = rng.choice(unassigned)
        near = [index for index in self._neighbours(first) if index not in held]
        ejected = rng.sample(near, rng.randint(min(1, len(near)), min(len(near), self.params.most_ejected)))
        old = self._ejected(ejected)
        tried = {first, *rng.sample(unassigned, min(len(unassigned), self.params.most_ejected))}
        most = sum(ejection_counts[index] for index in tried)
        done, left = [], []
        for index in self._shuffled([*sorted(tried), *ejected], first, weights):
            if self._insert(index):
                done.append(index)
                continue
            left.append(index)
            if len(left) > max(_FEW, len(tried)) or sum(ejection_counts[index] for index in left) > most:
                self._restore(done, old)
                return list(unassigned)
        return [index for index in unassigned if index not in tried] + left

    def _shuffled(self, indices: Sequence[int], first: int, weights: Sequence[float]) -> list[int]:
        """Return jobs by weights blurred by chance, in half of all cases with the first one in front."""
        front = self.rng.random() < 0.5
        key = {index: -weights[index] * self.rng.uniform(1, self.params.blur) for index in indices}
        return sorted(indices, key=lambda index: (not front or index != first, key[index]))

    def _neighbours(self, index: int) -> list[int]:
        """Return the jobs that share links, or a GPU of each server, with an assignment of the job."""
        placement, assignment = self.schedule.placement, self.policy.target(index)
        server_of = self.schedule.data.layout.server_of
        found: dict[int, None] = {}
        for link in assignment.links:
            found.update(dict.fromkeys(placement.on_link[link]))
        for gpu in {server_of[gpu]: gpu for gpu in assignment.gpus}.values():
            found.update(dict.fromkeys(placement.on_gpu[gpu]))
        return [other for other in found if other != index]

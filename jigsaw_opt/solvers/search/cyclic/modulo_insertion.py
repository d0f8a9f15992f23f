"""Jobs inserted one after the other modulo a given period, and ruin and recreate where some find no room."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence

from jigsaw_opt.problem.calendar import Calendar
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.search.cyclic.candidate_table import InsertionPolicy
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob, least_length, uncontended_profile
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule

TRIES_PER_JOB = 4
"""Fruitless tries of ruin and recreate for each job, after which a period is given up."""
_OFFSETS = 24
"""Offsets in the period that are tried for a job; a full link has hundreds, and most of them differ little."""
_FEW = 3
"""So many jobs may be left unassigned on the way, even where fewer were before: a way out may lead through worse."""
_MOST_UNASSIGNED = 0.25
"""With a larger share of the jobs unassigned, the period is given up at once: ruin and recreate gains a few jobs."""


class ModuloInsertion:
    """One attempt at a period.

    `policy`: where the jobs may be inserted. `count`: told, job by job, for how many blocks and transfers room was
    looked for.
    """

    def __init__(
        self,
        data: ProblemData,
        policy: InsertionPolicy,
        period: int,
        rng: random.Random,
        count: Callable[[int], object] = lambda operations: None,
    ) -> None:
        self.policy, self.period, self.rng, self.params = policy, period, rng, data.params.insertion
        self._count, self._looked_at = count, 0
        self.schedule = PartialSchedule(data, period)

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
        while unassigned and fewest <= _MOST_UNASSIGNED * len(weights) and left > 0 and not stop():
            unassigned = self._ruin_and_recreate(unassigned, ejection_counts, weights, held)
            fewest, left = (len(unassigned), tries) if len(unassigned) < fewest else (fewest, left - 1)
            for index in unassigned:
                ejection_counts[index] += 1
        return unassigned

    def _insert(self, index: int) -> bool:
        """Insert a job at the first assignment without any waiting time, or else at the one with the least."""
        best, least = None, float("inf")
        for assignment in self.policy.assignments(self.schedule.placement, index):
            alone = assignment.iteration_us * assignment.job.iterations
            scheduled = self._best(index, assignment, alone)
            if scheduled is not None and (share := (scheduled.end - scheduled.start) / alone) < least:
                best, least = scheduled, share
                if share <= 1:
                    break
        self._count(self._looked_at)
        self._looked_at = 0
        if best is not None:
            self.schedule.add(index, best)
        return best is not None

    def _best(self, index: int, assignment: Assignment, alone: int) -> ScheduledJob | None:
        """Return the job inserted at the offset at which it takes least time, or at the first one without waiting time.

        Offsets are tried in the order of what the links alone make of them, as long as that is better.
        """
        channel, job = self.schedule.channel(assignment), assignment.job
        best, shortest = None, self.period + 1
        for least, offset in self._offsets(assignment, channel):
            if least >= shortest:
                break
            self._looked_at += job.iterations * (job.slots + len(job.transfers))
            scheduled = self.schedule.inserted(index, assignment, offset, offset + shortest - 1, channel)
            if scheduled is not None and scheduled.end - scheduled.start < shortest:
                best, shortest = scheduled, scheduled.end - scheduled.start
                if shortest <= alone:
                    break
        return best

    def _offsets(self, assignment: Assignment, channel: Calendar) -> list[tuple[int, int]]:
        """Return offsets at which the first transfer or a block follows another one at once, and 0.

        Each with the time that the job takes from there as far as its links are free, shortest first.
        """
        ready = max(table[0] for table in assignment.tables)
        offsets = {0}
        offsets.update((end - ready) % self.period for end in channel.ends)
        for gpu in assignment.gpus[:1]:
            offsets.update(end % self.period for end in self.schedule.gpus[gpu].ends)
        found = sorted(offsets)
        some = found if len(found) <= _OFFSETS else sorted(self.rng.sample(found, _OFFSETS))
        profile, job = uncontended_profile(assignment), assignment.job
        self._looked_at += len(some) * job.iterations * len(job.transfers)
        ranked = ((least_length(assignment, profile, channel, offset), offset) for offset in some)
        return sorted((least, offset) for least, offset in ranked if least is not None and least <= self.period)

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
        old = [(index, self.schedule.remove(index)) for index in ejected]
        tried = {first, *rng.sample(unassigned, min(len(unassigned), self.params.most_ejected))}
        most = sum(ejection_counts[index] for index in tried)
        done, left = [], []
        for index in self._shuffled([*sorted(tried), *ejected], first, weights):
            if self._insert(index):
                done.append(index)
                continue
            left.append(index)
            if len(left) > max(_FEW, len(tried)) or sum(ejection_counts[index] for index in left) > most:
                for index in done:
                    self.schedule.remove(index)
                for index, scheduled in old:
                    self.schedule.add(index, scheduled)
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

"""The best coschedule of the jobs that are left, again and again, while jobs cost nothing: what greedy filling asks
for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.formulations.packing import CoscheduledClasses, JobKind, Valued
from jigsaw_opt.solvers.allocation.packing.generation import Generation

__all__ = ["Filling"]


class _Front(NamedTuple):
    worth: float
    of_class: int


class Filling:
    """Jobs left, by kind in order of worth, and the coschedules that they can form on servers of one type.

    `generation`: coschedules and their rates; a coschedule that is chosen gets its timetable. `number`: number of the
    type of servers. `worth`: worth of a unit of progress by class.
    """

    def __init__(self, generation: Generation, number: int, jobs: Sequence[int], worth: Sequence[float]) -> None:
        self._generation, self._jobs, self._worth = generation, list(jobs), worth
        pricing = generation.pricings[number]
        self._lines = _lines(pricing.members, self._jobs, worth)
        self._coschedules: dict[int, list[int]] = {}
        for coschedule in pricing.on_type:
            if all(self._lines[kind] for kind in generation.coschedules[coschedule].kinds):
                self._coschedules.setdefault(generation.coschedules[coschedule].site.gpus, []).append(coschedule)
        self._best: dict[int, Valued | None] = {}

    def best(self, room: int, servers: int) -> Valued | None:
        """Return the classes for a coschedule with the largest value per GPU, None where none fits."""
        found = (self._best_of(size) for size in self._coschedules)
        fitting = [v for v in found if v is not None and (v.gpus <= room or v.servers <= servers)]
        return max(fitting, key=lambda valued: (valued.value / valued.gpus, valued.gpus), default=None)

    def take(self, team: CoscheduledClasses, copies: int, gpus: int) -> None:
        """Subtract the jobs of some copies of a coschedule from those that are left."""
        for number in team.classes:
            self._jobs[number] -= copies
        self._best.pop(gpus, None)

    def copies(self, team: CoscheduledClasses) -> int:
        """Return how many copies of such a coschedule the jobs left allow."""
        return min(self._jobs[c] // team.classes.count(c) for c in team.classes)

    def _best_of(self, size: int) -> Valued | None:
        if size not in self._best:
            self._best[size] = self._search(size)
        return self._best[size]

    def _search(self, size: int) -> Valued | None:
        generation = self._generation
        while True:
            teams = (self._team(coschedule) for coschedule in self._coschedules[size])
            value, team = max((found for found in teams if found is not None), default=(0.0, None))
            if team is None or value <= 0.0:
                return None
            if not generation.timetable(team.coschedule):
                site = generation.coschedules[team.coschedule].site
                return Valued(value, team, site.servers, site.gpus)

    def _team(self, number: int) -> tuple[float, CoscheduledClasses] | None:
        """Return the jobs of most worth in a coschedule, and their value; None where there are too few."""
        kinds, rates = self._generation.coschedules[number].kinds, self._generation.rates[number]
        first = self._front(kinds[0], 0)
        if first is None:
            return None
        if len(kinds) == 1:
            return first.worth * rates[0], CoscheduledClasses(number, (first.of_class,))
        again = kinds[1] == kinds[0] and self._jobs[first.of_class] == 1
        second = self._front(kinds[1], 1 if again else 0)
        if second is None:
            return None
        return first.worth * rates[0] + second.worth * rates[1], CoscheduledClasses(
            number, (first.of_class, second.of_class)
        )

    def _front(self, kind: JobKind, skipped: int) -> _Front | None:
        """Return the class of most worth that has jobs left, after skipping some; forget classes without jobs."""
        line = self._lines[kind]
        while line and not self._jobs[line[-1]]:
            line.pop()
        left = (c for c in reversed(line) if self._jobs[c])
        for _ in range(skipped):
            next(left, None)
        found = next(left, None)
        return None if found is None else _Front(self._worth[found], found)


def _lines(
    members: Mapping[JobKind, Iterable[int]], jobs: Sequence[int], worth: Sequence[float]
) -> dict[JobKind, list[int]]:
    """Return classes with jobs by kind, those of most worth last."""
    return {kind: sorted((c for c in own if jobs[c]), key=lambda c: (worth[c], -c)) for kind, own in members.items()}

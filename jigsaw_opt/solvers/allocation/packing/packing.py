"""Packing a queue into a cluster, with a proven gap, and what no packing at all exceeds.

From a fractional packing to a whole one: patterns are taken in whole numbers, the servers and jobs that they leave make
a smaller program with the same columns, and so on until no column is taken once. The servers that are left are filled
one by one with the pattern of most value that the jobs left over allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.formulations.packing.coscheduling import Coschedule, JobKind
from jigsaw_opt.formulations.packing.master import CoscheduledClasses, ServerPattern, Valued
from jigsaw_opt.problem.packing import PackingProblem
from jigsaw_opt.solvers.allocation.packing.generation import Generation, MasterSolution, Memory, RelaxedMaster


class _Front(NamedTuple):
    worth: float
    of_class: int


class Filling:
    """Jobs left, by kind in order of worth, and the coschedules that they can form on servers of one type.

    `generation`: coschedules and their rates; a coschedule that is chosen gets its timetable. `number`: number of the
    type of servers.
    """

    def __init__(self, generation: Generation, number: int, jobs: Sequence[int]) -> None:
        pricing = generation.pricings[number]
        self._generation, self._jobs, self._worth = generation, list(jobs), pricing.weights
        self._lines = _lines(pricing.members, self._jobs, self._worth)
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


_WHOLE = 1e-7
"""A share this little below a whole number counts as it: an engine's floats are so far off."""


class Rounding:
    """A packing under construction.

    `generation`: coschedules, their rates, and the patterns with timetables. `taken`: number of times that each pattern
    is used. `servers, jobs`: servers left by type, and jobs left by class.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        problem = generation.problem
        self.taken: Counter[ServerPattern] = Counter()
        self.servers = [t.count for t in problem.types]
        self.jobs = [c.count for c in problem.classes]
        self.progress = [0.0] * len(problem.classes)

    def dive(self, program: RelaxedMaster, solution: MasterSolution) -> None:
        """Take the whole parts of a solution until the program of what is left takes no pattern once."""
        while True:
            before = self.taken.total()
            for pattern, share in zip(self.generation.columns, solution.columns, strict=True):
                self.take(pattern, int(share + _WHOLE))
            if self.taken.total() == before:
                break
            program.limit([*map(float, self.servers), *map(float, self.jobs)])
            solution = program.solve()

    def take(self, pattern: ServerPattern, copies: int) -> int:
        """Use a pattern up to `copies` times, as far as servers and jobs go; return how often it was used."""
        needs = pattern.jobs()
        room = min(self.jobs[c] // count for c, count in needs.items())
        copies = min(copies, room, self.servers[pattern.type] // pattern.servers)
        if copies <= 0:
            return 0
        self.taken[pattern] += copies
        self.servers[pattern.type] -= copies * pattern.servers
        for number, count in needs.items():
            self.jobs[number] -= copies * count
        for number, gained in pattern.progress(self.generation.rates).items():
            self.progress[number] += copies * gained
        return copies

    def fill(self) -> None:
        """Fill the servers that are left, one after the other."""
        for number in range(len(self.servers)):
            filling = Filling(self.generation, number, self.jobs)
            while self.servers[number] and (pattern := self._server(number, filling)) is not None:
                self.take(pattern, 1)

    def _server(self, number: int, filling: Filling) -> ServerPattern | None:
        """Return a server, or several for a wide coschedule, filled with coschedules in order of value per GPU."""
        gpus = self.generation.problem.types[number].server.gpus
        lead = filling.best(gpus, self.servers[number])
        if lead is None:
            return None
        teams: Counter[CoscheduledClasses] = Counter()
        room = lead.servers * gpus
        chosen: Valued | None = lead
        while chosen is not None:
            copies = min(room // chosen.gpus, filling.copies(chosen.team))
            teams[chosen.team] += copies
            room -= copies * chosen.gpus
            filling.take(chosen.team, copies, chosen.gpus)
            chosen = filling.best(room, 0)
        return ServerPattern(number, lead.servers, tuple(sorted(teams.items())))


@dataclass(frozen=True, slots=True)
class PackedQueue:
    """A packing.

    `patterns`: patterns, and how often each is used. `coschedules, types`: the coschedules that the patterns name by
    number, and the type of servers of each. `rates`: for each coschedule the rates of its jobs, from its timetable.
    `progress`: normalised progress by class in unit time. `bound`: no packing of such coschedules is worth more;
    infinite where none was sought.
    """

    patterns: tuple[tuple[ServerPattern, int], ...]
    coschedules: tuple[Coschedule, ...]
    types: tuple[int, ...]
    rates: tuple[tuple[float, ...], ...]
    progress: tuple[float, ...]
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """Return how far the objective is from the bound, as a share of the bound."""
        return 0.0 if self.bound <= 0.0 else max(0.0, 1.0 - self.objective / self.bound)


def pack(problem: PackingProblem, memory: Memory | None = None) -> PackedQueue:
    """Choose which jobs share which GPUs.

    `memory`: what earlier packings of the same types and models have left; it is added to. Timetables found once are
    not looked for again, and the patterns that were in use are the first columns.
    """
    generation = Generation(problem, memory if memory is not None else Memory())
    program, solution = generation.with_timetables(generation.relax())
    rounding = Rounding(generation)
    rounding.dive(program, solution)
    return _filled(rounding)


def fill(problem: PackingProblem, memory: Memory | None = None) -> PackedQueue:
    """Choose which jobs share which GPUs by filling server after server, without a linear program or a bound.

    Parameters are those of `pack`.
    """
    return _filled(Rounding(Generation(problem, memory if memory is not None else Memory())))


def _filled(rounding: Rounding) -> PackedQueue:
    rounding.fill()
    generation, progress = rounding.generation, tuple(rounding.progress)
    return PackedQueue(
        patterns=tuple(rounding.taken.items()),
        coschedules=tuple(generation.coschedules),
        types=tuple(generation.on_type),
        rates=tuple(generation.timetabled_rates()),
        progress=progress,
        objective=sum(c.weight * gained for c, gained in zip(generation.problem.classes, progress, strict=True)),
        bound=generation.bound,
    )

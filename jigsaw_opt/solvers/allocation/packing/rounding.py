"""From a fractional packing to a whole one: whole parts first, the rest solved again, the last servers filled.

Patterns are taken in whole numbers, the servers
and jobs that they leave make a smaller program with the same columns, and so on until no column is taken once. The
servers that are left are filled one by one with the pattern of most value that the jobs left over allow.
"""

from __future__ import annotations

from collections import Counter

from jigsaw_opt.formulations.packing import Pattern, Prices, Pricing, Rates, Team, Valued
from jigsaw_opt.problem.packing import JobClass
from jigsaw_opt.solvers.allocation.packing.generation import Generation
from jigsaw_opt.solvers.allocation.packing.program import Program, Solution

__all__ = ["Rounding", "value_of"]

_WHOLE = 1e-7


class Rounding:
    """A packing under construction.

    Parameters
    ----------
    generation
        Gangs, their rates, and the patterns with timetables.

    Attributes
    ----------
    taken
        How often each pattern is used.
    servers, jobs
        Servers left by type, and jobs left by class.
    progress
        Progress by class.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        problem = generation.problem
        self.taken: Counter[Pattern] = Counter()
        self.servers = [t.count for t in problem.types]
        self.jobs = [c.count for c in problem.classes]
        self.progress = [0.0] * len(problem.classes)

    def dive(self, program: Program, solution: Solution) -> None:
        """Take whole parts until a program of what is left takes no pattern once."""
        while True:
            before = self.taken.total()
            for pattern, share in zip(self.generation.columns, solution.columns, strict=True):
                self.take(pattern, int(share + _WHOLE))
            if self.taken.total() == before:
                break
            program.limit([*map(float, self.servers), *map(float, self.jobs), *self.progress])
            solution = program.solve()

    def take(self, pattern: Pattern, copies: int) -> int:
        """Use a pattern up to `copies` times, as far as servers and jobs go; how often it was used."""
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
        rates = self.generation.certified()
        for number, pricing in enumerate(self.generation.pricings):
            while self.servers[number]:
                pattern = self._server(pricing, rates)
                if pattern is None or not self.take(pattern, self.servers[number]):
                    break

    def _server(self, pricing: Pricing, rates: Rates) -> Pattern | None:
        """Servers filled with gangs in order of value for a GPU; None where nothing fits."""
        teams: Counter[Team] = Counter()
        jobs, room, servers = list(self.jobs), pricing.gpus, 1
        while True:
            best = pricing.best_teams(self._prices(), rates, jobs)
            fitting = [v for v in best.values() if v.gpus <= room or (not teams and self._site(pricing, v))]
            if not fitting:
                break
            chosen = max(fitting, key=lambda valued: (valued.value / valued.gpus, valued.gpus))
            if not teams:
                servers, room = chosen.servers, chosen.servers * pricing.gpus
            needs = Counter(chosen.team.classes)
            copies = min(room // chosen.gpus, *(jobs[c] // count for c, count in needs.items()))
            teams[chosen.team] += copies
            room -= copies * chosen.gpus
            for number, count in needs.items():
                jobs[number] -= copies * count
        return Pattern(pricing.number, servers, tuple(sorted(teams.items()))) if teams else None

    def _site(self, pricing: Pricing, valued: Valued) -> bool:
        return valued.servers <= self.servers[pricing.number]

    def _prices(self) -> Prices:
        """Worth of one more unit of progress of each class; servers and jobs cost nothing."""
        problem = self.generation.problem
        worth = [marginal(c, progress) for c, progress in zip(problem.classes, self.progress, strict=True)]
        return Prices([0.0] * len(problem.types), [0.0] * len(worth), worth)


def marginal(of_class: JobClass, progress: float) -> float:
    """Worth of one more unit of progress of a class."""
    step = next((s for s in of_class.steps if progress < s.share * of_class.count), None)
    return 0.0 if step is None else of_class.weight * step.slope


def value_of(of_class: JobClass, progress: float) -> float:
    """Worth of all progress of a class."""
    value = reached = 0.0
    for step in of_class.steps:
        top = min(progress, step.share * of_class.count)
        value += of_class.weight * step.slope * max(0.0, top - reached)
        reached = top
    return value

"""From a fractional packing to a whole one: whole parts first, the rest solved again, the last servers filled.

Patterns are taken in whole numbers, the servers
and jobs that they leave make a smaller program with the same columns, and so on until no column is taken once. The
servers that are left are filled one by one with the pattern of most value that the jobs left over allow.
"""

from __future__ import annotations

from collections import Counter

from jigsaw_opt.formulations.packing import CoscheduledClasses, ServerPattern, Valued
from jigsaw_opt.problem.packing import QueuedJobs
from jigsaw_opt.solvers.allocation.packing.filling import Filling
from jigsaw_opt.solvers.allocation.packing.generation import Generation
from jigsaw_opt.solvers.allocation.packing.program import MasterSolution, RelaxedMaster

__all__ = ["Rounding", "marginal", "value_of"]

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
            program.limit([*map(float, self.servers), *map(float, self.jobs), *self.progress])
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
            filling = None
            while self.servers[number]:
                # Only the worth of classes with several steps of value changes on the way.
                if filling is None or not self._linear:
                    filling = Filling(self.generation, number, self.jobs, self._worth())
                pattern = self._server(number, filling)
                if pattern is None:
                    break
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

    @property
    def _linear(self) -> bool:
        return all(len(c.steps) == 1 for c in self.generation.problem.classes)

    def _worth(self) -> list[float]:
        """Return the worth of one more unit of progress of each class."""
        return [marginal(c, gained) for c, gained in zip(self.generation.problem.classes, self.progress, strict=True)]


def marginal(of_class: QueuedJobs, progress: float) -> float:
    """Return the worth of one more unit of progress of a class."""
    step = next((s for s in of_class.steps if progress < s.share * of_class.count), None)
    return 0.0 if step is None else of_class.weight * step.slope


def value_of(of_class: QueuedJobs, progress: float) -> float:
    """Return the worth of all progress of a class."""
    value = reached = 0.0
    for step in of_class.steps:
        top = min(progress, step.share * of_class.count)
        value += of_class.weight * step.slope * max(0.0, top - reached)
        reached = top
    return value

"""Packing a queue into a cluster, with a certified gap, and what no packing at all exceeds."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.formulations.packing.coscheduling import Coschedule
from jigsaw_opt.formulations.packing.master import ServerPattern
from jigsaw_opt.problem.packing import PackingProblem
from jigsaw_opt.solvers.allocation.packing.generation import Generation, Memory
from jigsaw_opt.solvers.allocation.packing.rounding import Rounding


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
    program, solution = generation.certify(generation.relax())
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
        rates=tuple(generation.certified()),
        progress=progress,
        objective=sum(c.weight * gained for c, gained in zip(generation.problem.classes, progress, strict=True)),
        bound=generation.bound,
    )

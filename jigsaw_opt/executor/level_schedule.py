"""Levels of a job's workers in each iteration, where no plan states them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal

from jigsaw_opt.errors import UsageError, out_of_range
from jigsaw_opt.problem.costs import ceil_fraction, staircase

Assignment = Literal["fixed", "rotation", "permutation"]
Rule = Literal["full", "staircase", "free"]


@dataclass(frozen=True, slots=True)
class LevelSchedule:
    """The levels of all workers, the same on each without a message between them.

    Parameters
    ----------
    depth, workers
        Levels of the model, ``D``, and number of workers, ``w``.
    rule
        ``full``; ``staircase``: the levels ``ceil(D*k/w)``, ``k = 1..w``; or ``free``: `min_contributors` at full
        depth, the others anywhere, all drawn anew after every `granularity` iterations, whatever the `assignment`.
    assignment
        ``fixed``: worker ``k`` has the ``k``-th. ``rotation`` (SPB's "cyclic"): the next worker has it after
        every `granularity` iterations. ``permutation`` (SPB's "shuffle"): drawn anew after as many.
    granularity
        Iterations for which an assignment stays, at least 1 (SPB's "update granularity").
    warm_up
        Iterations at full depth before the rule begins (SPB's "start epoch", in iterations).
    seed
        Seed of the permutations and draws.
    min_contributors
        Workers at full depth under ``free``, 1 to `workers`; every bucket has at least so many contributors.
    mean_depth
        Least mean level under ``free``, as a share of `depth`, at most 1: levels that are drawn too low rise.

    Raises
    ------
    UsageError
        A number is out of range.
    """

    depth: int
    workers: int
    rule: Rule = "staircase"
    assignment: Assignment = "rotation"
    granularity: int = 1
    warm_up: int = 0
    seed: int = 0
    min_contributors: int = 1
    mean_depth: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if min(self.depth, self.workers, self.granularity) < 1 or self.warm_up < 0:
            raise UsageError(
                "depth, workers and granularity are at least 1, and the warm-up is at least 0", code="out-of-range"
            )
        if not 1 <= self.min_contributors <= self.workers:
            message = f"contributors are 1 to the {self.workers} workers, not {self.min_contributors}"
            raise out_of_range("min_contributors", message)
        if not 0 <= self.mean_depth <= 1:
            raise out_of_range("mean_depth", f"a mean depth is 0 to 1, not {self.mean_depth}")

    def levels(self, iteration: int) -> tuple[int, ...]:
        """Return the level of each worker in `iteration`, from 0."""
        turn = (iteration - self.warm_up) // self.granularity
        if self.rule == "full" or iteration < self.warm_up:
            return (self.depth,) * self.workers
        if self.rule == "free":
            return self._drawn(Random(f"{self.seed} {turn}"))
        steps = staircase(self.depth, self.workers)
        if self.assignment == "rotation":
            return tuple(steps[(worker + turn) % self.workers] for worker in range(self.workers))
        if self.assignment == "permutation":
            return tuple(Random(f"{self.seed} {turn}").sample(steps, self.workers))
        return steps

    def _drawn(self, draw: Random) -> tuple[int, ...]:
        full = [self.depth] * self.min_contributors
        others = [draw.randint(1, self.depth) for _ in range(self.workers - self.min_contributors)]
        for _ in range(ceil_fraction(self.mean_depth * self.depth * self.workers) - sum(full + others)):
            others[draw.choice([at for at, level in enumerate(others) if level < self.depth])] += 1
        return tuple(draw.sample(full + others, self.workers))

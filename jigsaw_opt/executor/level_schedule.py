"""Levels of a job's workers in each iteration, where no plan states them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from random import Random
from typing import Literal

from jigsaw_opt.arguments import require_fields
from jigsaw_opt.errors import out_of_range, require_at_least
from jigsaw_opt.problem.costs import ceil_fraction, staircase

Assignment = Literal["fixed", "rotation", "permutation"]
Rule = Literal["full", "staircase", "free", "two_level", "uniform"]


@dataclass(frozen=True, slots=True)
class LevelSchedule:
    """The levels of all workers, the same on each without a message between them.

    Parameters
    ----------
    depth, workers
        Levels of the model, ``D``, and number of workers, ``w``.
    rule
        ``full``; ``staircase``: the levels ``ceil(D*k/w)``, ``k = 1..w``; ``free``: `min_contributors` at full
        depth, the others anywhere, all drawn anew after every `granularity` iterations, whatever the `assignment`;
        ``two_level``: as many at full depth as `mean_depth` asks for, and the others at level 1; or ``uniform``: all
        at the same level, from ``D`` to 1 in turn, so that deep buckets have no gradient in most iterations.
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
        Fewest workers at full depth under ``free`` and ``two_level``, 1 to `workers`; every bucket has at least so
        many contributors.
    mean_depth
        Mean level as a share of `depth`, at most 1. Under ``free`` the least one: levels that are drawn too low rise.
        Under ``two_level`` that over many iterations; 0 for that of a staircase.
    full_every
        0, or after how many iterations, again and again, one goes to full depth; the rule counts the others alone.
    freeze_from
        Iteration at which the part at the input stops being trained, and then the others one after the other, in
        equal times; the part at the output stays. None for never. No full depth goes beyond the parts that are left.
    iterations
        End of the training, at which one part is left; more than `freeze_from`.

    Raises
    ------
    UsageError
        A number is out of range, or an argument is of another type.
    """

    depth: int
    workers: int
    rule: Rule = "staircase"
    assignment: Assignment = "rotation"
    granularity: int = 1
    warm_up: int = 0
    seed: int = 0
    min_contributors: int = 1
    mean_depth: Fraction | int = Fraction(0)
    full_every: int = 0
    freeze_from: int | None = None
    iterations: int = 0

    def __post_init__(self) -> None:
        require_fields(self)
        require_at_least(1, depth=self.depth, workers=self.workers, granularity=self.granularity)
        require_at_least(0, warm_up=self.warm_up, full_every=self.full_every)
        if not 1 <= self.min_contributors <= self.workers:
            message = f"contributors are 1 to the {self.workers} workers, not {self.min_contributors}"
            raise out_of_range("min_contributors", message)
        if not 0 <= self.mean_depth <= 1:
            raise out_of_range("mean_depth", f"a mean depth is 0 to 1, not {self.mean_depth}")
        if self.freeze_from is not None and not 0 <= self.freeze_from < self.iterations:
            end = f"{self.iterations}, not {self.freeze_from}" if self.iterations else "and `iterations` is not given"
            message = f"parts are frozen from an iteration before the end, {end}"
            raise out_of_range("freeze_from", message)

    def levels(self, iteration: int) -> tuple[int, ...]:
        """Return the level of each worker in `iteration`, from 0."""
        deepest = self._unfrozen(iteration)
        return tuple(min(level, deepest) for level in self._of_rule(iteration))

    def _unfrozen(self, iteration: int) -> int:
        """Return the level that reaches all parts which are still trained."""
        if self.freeze_from is None or iteration < self.freeze_from:
            return self.depth
        past = (iteration - self.freeze_from) * (self.depth - 1) // (self.iterations - self.freeze_from)
        return max(1, self.depth - 1 - past)

    def _of_rule(self, iteration: int) -> tuple[int, ...]:
        number, every = iteration - self.warm_up, self.full_every
        if self.rule == "full" or number < 0 or (every and number % every == every - 1):
            return (self.depth,) * self.workers
        turn = (number - (number // every if every else 0)) // self.granularity
        if self.rule == "free":
            return self._drawn(Random(f"{self.seed} {turn}"))
        if self.rule == "uniform":
            return (self.depth - turn % self.depth,) * self.workers
        steps, shift = staircase(self.depth, self.workers), turn
        if self.rule == "two_level":
            steps, shift = self._two_levels(turn)
        if self.assignment == "rotation":
            return tuple(steps[(worker + shift) % self.workers] for worker in range(self.workers))
        if self.assignment == "permutation":
            return tuple(Random(f"{self.seed} {turn}").sample(steps, self.workers))
        return steps

    def _two_levels(self, turn: int) -> tuple[tuple[int, ...], int]:
        """Return two levels in order, and by how many workers they are shifted so that all work equally much."""
        total = self.mean_depth * self.depth * self.workers or Fraction(sum(staircase(self.depth, self.workers)))
        full = max(Fraction(self.min_contributors), (total - self.workers) / max(1, self.depth - 1))
        before, after = floor(turn * full), floor((turn + 1) * full)
        return (self.depth,) * (after - before) + (1,) * (self.workers - after + before), -before

    def _drawn(self, draw: Random) -> tuple[int, ...]:
        full = [self.depth] * self.min_contributors
        others = [draw.randint(1, self.depth) for _ in range(self.workers - self.min_contributors)]
        for _ in range(ceil_fraction(Fraction(self.mean_depth) * self.depth * self.workers) - sum(full + others)):
            others[draw.choice([at for at, level in enumerate(others) if level < self.depth])] += 1
        return tuple(draw.sample(full + others, self.workers))

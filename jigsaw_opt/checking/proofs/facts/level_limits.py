"""Limits of the levels of a job: the same in every iteration, or coverage and a least total (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, gcd

from jigsaw_opt.checking.terms import ModelTerms
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.job import Job


@dataclass(frozen=True, slots=True)
class LevelLimits:
    """What all levels of a job keep.

    `fixed`: levels of the workers in every iteration, ascending; None where they may differ. `contributors`: least
    number of workers at the last level in each iteration. `total`: least sum over all workers and iterations.
    """

    fixed: tuple[int, ...] | None
    contributors: int
    total: int


def level_limits(job: Job, terms: ModelTerms) -> LevelLimits | None:
    """Return the limits of a job; None for a depth rule that the specification does not know."""
    rule, workers, deepest = job.depth, job.workers, terms.depth
    if isinstance(rule, FullDepth):
        return _fixed((deepest,) * workers, job.iterations)
    if isinstance(rule, StaircaseDepth):
        steps = tuple((deepest * k + workers - 1) // workers for k in range(1, workers + 1))
        return _fixed(rule.levels or steps, job.iterations)
    if not isinstance(rule, FreeDepth):
        return None
    default = Fraction(workers + 1, 2 * workers) if rule.min_progress is None else Fraction(0)
    share = default if rule.mean_depth is None else Fraction(rule.mean_depth)
    contributors, mean = min(rule.min_contributors, workers), share * deepest * workers
    if rule.min_progress is not None and terms.efficiency is not None:
        losses = _losses(terms.efficiency, workers)
        most = job.iterations * 10**6 * sum(_lowest_terms(terms.efficiency[1]))
        slack = most - ceil(Fraction(rule.min_progress) * most)
        fewest = next((c for c in range(1, workers) if losses[-1][c] <= slack), workers)
        contributors = max(contributors, fewest)
        mean = max(mean, _least_mean(losses, contributors, slack, job.iterations))
    # Where a job moves, each of its parts keeps the mean by itself, and what is rounded up may cost more than they do.
    rounded = ceil if job.restart_us is None else floor
    return LevelLimits(None, contributors, rounded(mean * job.iterations))


def _fixed(levels: tuple[int, ...], iterations: int) -> LevelLimits:
    return LevelLimits(levels, levels.count(levels[-1]), sum(levels) * iterations)


def _lowest_terms(weights: Sequence[int]) -> list[int]:
    return [weight // gcd(*weights) for weight in weights]


def _losses(efficiency: tuple[tuple[int, ...], tuple[int, ...]], workers: int) -> list[list[int]]:
    """Return what an iteration loses beside full depth, by bucket and number of contributors from 0, in millionths."""
    found = []
    for noise, weight in zip(efficiency[0], _lowest_terms(efficiency[1]), strict=True):
        made = [0]
        for c in range(1, workers + 1):
            made.append(10**6 * c * (1000 * workers + noise) // (workers * (1000 * c + noise)))
        found.append([weight * (10**6 - each) for each in made])
    return found


def _least_mean(losses: Sequence[Sequence[int]], contributors: int, slack: int, iterations: int) -> Fraction:
    """Return the least sum of the levels of a mean iteration whose losses, made convex, are within the slack."""
    workers, deepest = len(losses[0]) - 1, len(losses)
    if slack < 0:
        return workers * deepest + Fraction(1, iterations)
    sides, missing = [], -Fraction(slack, iterations)
    for lost in losses[1:]:
        missing += lost[contributors]
        corners = lower_envelope([(c, lost[c]) for c in range(contributors, workers + 1)])
        sides += [(Fraction(high - low, b - a), b - a) for (a, high), (b, low) in pairwise(corners)]
    levels = Fraction(workers + contributors * (deepest - 1))
    for gain, room in sorted(sides, reverse=True):
        if missing > 0 and gain > 0:
            taken = min(Fraction(room), missing / gain)
            levels, missing = levels + taken, missing - taken * gain
    return levels


def lower_envelope(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the corners of the largest convex function below some points, given by ascending first coordinates."""
    corners: list[tuple[int, int]] = []
    for x, y in points:
        while len(corners) >= 2:
            (a, f), (b, g) = corners[-2:]
            if (g - f) * (x - b) < (y - g) * (b - a):
                break
            corners.pop()
        corners.append((x, y))
    return corners

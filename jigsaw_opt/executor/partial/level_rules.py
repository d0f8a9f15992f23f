"""Which level each worker goes to in each iteration, from what a caller names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.exchange import require_full_depth
from jigsaw_opt.executor.schedule import LevelSchedule
from jigsaw_opt.problem.depth import FreeDepth

__all__ = ["LevelRule", "Levels", "level_rule"]

Levels = Literal["full", "staircase", "rotation", "permutation", "free"] | FreeDepth | Callable[[int, int], int]
"""A rule by name, a free one with its numbers, or a function of iteration and worker, both from 0."""
LevelRule = Callable[[int], tuple[int, ...]]
"""The levels of all workers in an iteration, from 0."""


def level_rule(levels: Levels, depth: int, workers: int, warm_up: int, granularity: int, seed: int) -> LevelRule:
    """Return the rule that `levels` names, for so many levels and workers.

    Parameters
    ----------
    levels, warm_up, granularity, seed
        As for `PartialBackprop`.
    depth, workers
        Levels of the model and workers of the job.

    Raises
    ------
    UsageError
        There is no such rule, or one of the numbers is out of range.
    """
    if levels == "free":
        levels = FreeDepth()
    if isinstance(levels, FreeDepth):
        if levels.balance is not None:
            raise UsageError("levels that are drawn keep no balance: leave it out")
        schedule = LevelSchedule(
            depth,
            workers,
            rule="free",
            granularity=granularity,
            warm_up=warm_up,
            seed=seed,
            min_contributors=min(levels.min_contributors, workers),
            mean_depth=levels.mean(workers),
        )
        return schedule.levels
    if levels in ("full", "staircase", "rotation", "permutation"):
        return LevelSchedule(
            depth,
            workers,
            rule="full" if levels == "full" else "staircase",
            assignment=levels if levels in ("rotation", "permutation") else "fixed",
            granularity=granularity,
            warm_up=warm_up,
            seed=seed,
        ).levels
    if not callable(levels):
        names = "full, staircase, rotation, permutation, free, a FreeDepth or a function of iteration and worker"
        raise UsageError(f"levels are {names}, not {levels!r}")
    return _of_function(levels, depth, workers, warm_up, granularity)


def _of_function(
    levels: Callable[[int, int], int], depth: int, workers: int, warm_up: int, granularity: int
) -> LevelRule:
    if warm_up < 0 or granularity < 1:
        raise UsageError("granularity is at least 1, and the warm-up is at least 0")

    def rule(iteration: int) -> tuple[int, ...]:
        if iteration < warm_up:
            return (depth,) * workers
        turn = warm_up + (iteration - warm_up) // granularity * granularity
        found = tuple(levels(turn, worker) for worker in range(workers))
        wrong = [level for level in found if not isinstance(level, int) or not 1 <= level <= depth]
        if wrong:
            raise UsageError(f"levels of iteration {iteration} are {found}; a level is an integer from 1 to {depth}")
        require_full_depth(found, depth)
        return found

    return rule

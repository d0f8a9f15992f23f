"""Rules for the level of each worker in each iteration, from what a caller names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

from jigsaw_opt.errors import mismatch, not_together, out_of_range, unsupported
from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.plan import JobPlan

Levels = (
    Literal["full", "staircase", "rotation", "permutation", "free", "two_level", "uniform"]
    | FreeDepth
    | LevelSchedule
    | Callable[[int, int], int]
    | JobPlan
)
"""A rule, or a function of iteration and worker, both from 0, or a job of a plan."""
LevelRule = Callable[[int], tuple[int, ...]]
"""The levels of all workers in an iteration, from 0."""
_NAMED: Mapping[str, Mapping[str, Any]] = {
    **{name: {"rule": name} for name in ("full", "two_level", "uniform")},
    **{name: {"assignment": name} for name in ("rotation", "permutation")},
    "staircase": {"assignment": "fixed"},
}
"""What a `LevelSchedule` has beside its defaults, by the name of levels."""


def level_rule(levels: Levels, depth: int, workers: int, warm_up: int, granularity: int, seed: int) -> LevelRule:
    """Return the rule that `levels` names, for so many levels and workers."""
    base = LevelSchedule(depth, workers, granularity=granularity, warm_up=warm_up, seed=seed)
    if levels == "free":
        levels = FreeDepth()
    if isinstance(levels, LevelSchedule | JobPlan) and (warm_up, granularity) != (0, 1):
        message = "a schedule or a plan says the levels of each iteration: leave warm_up and granularity out"
        raise not_together("levels", message)
    if isinstance(levels, FreeDepth):
        for name in ("balance", "min_progress"):
            if getattr(levels, name) is not None:
                raise unsupported(name, f"levels that are drawn keep no {name}: leave it out")
        fewest = min(levels.min_contributors, workers)
        return replace(base, rule="free", min_contributors=fewest, mean_depth=levels.mean(workers)).levels
    if isinstance(levels, LevelSchedule):
        if (levels.depth, levels.workers) != (depth, workers):
            own = f"{levels.depth} levels and {levels.workers} workers"
            raise mismatch("levels", f"the schedule is of {own}; here are {depth}, {workers}")
        return levels.levels
    if isinstance(levels, JobPlan):
        return _of_plan(levels, depth, workers)
    if isinstance(levels, str):
        return replace(base, **_NAMED[levels]).levels
    return _of_function(levels, depth, workers, warm_up, granularity)


def _of_plan(job: JobPlan, depth: int, workers: int) -> LevelRule:
    """Return the levels of a plan's iterations, again and again."""
    if len(job.gpus) != workers:
        raise mismatch("levels", f"job {job.name!r} of the plan has {len(job.gpus)} workers; here are {workers}")
    rows = job.levels
    deepest = max(map(max, rows))
    if deepest != depth:
        raise mismatch("levels", f"job {job.name!r} of the plan has levels up to {deepest}, and the model has {depth}")
    return lambda iteration: rows[iteration % len(rows)]


def _of_function(
    levels: Callable[[int, int], int], depth: int, workers: int, warm_up: int, granularity: int
) -> LevelRule:
    def rule(iteration: int) -> tuple[int, ...]:
        if iteration < warm_up:
            return (depth,) * workers
        turn = warm_up + (iteration - warm_up) // granularity * granularity
        found = tuple(levels(turn, worker) for worker in range(workers))
        wrong = [level for level in found if not isinstance(level, Integral) or not 1 <= level <= depth]
        if wrong:
            message = f"levels of iteration {iteration} are {found}; a level is an integer from 1 to {depth}"
            raise out_of_range("levels", message)
        return tuple(map(int, found))

    return rule


def require_picklable(levels: Levels) -> None:
    """Raise `UsageError` where `levels` is a function that pickle cannot find by its name."""
    if "<" in getattr(levels, "__qualname__", ""):
        raise unsupported("levels", "levels of a function within another one cannot be pickled: save state_dict()")

"""Performance profiles: how far each run is from the best of all, in the manner of Dolan and Moré."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, TypeAlias

from jigsaw_opt.sweeps.bench.summary import best_objectives, by_line, grouped, objective_ratio, seconds_to

__all__ = ["objective_profile", "time_profile"]

Row: TypeAlias = Mapping[str, Any]


def objective_profile(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return for each solver and time limit the ratio of each run's objective to the best one of its instance.

    Infinite without a plan.
    """
    best = best_objectives(rows)
    return _by_line(rows, lambda row: objective_ratio(row, best))


def time_profile(rows: Sequence[Row], near: float) -> dict[str, list[float]]:
    """Return for each solver and time limit the ratios of run time to the fastest with that instance and seed.

    `near`: the time is the one until an objective of at most the best of the instance and this share of it; infinite
    where the run never has one.
    """
    best = best_objectives(rows)
    seconds = {
        row["key"]: seconds_to(row, (1 + near) * best[row["instance_sha256"]])
        for row in rows
        if row["instance_sha256"] in best
    }
    fastest = {
        row["key"]: min(seconds.get(rival["key"], inf) for rival in rivals)
        for rivals in grouped(rows, lambda row: (row["instance_sha256"], row["seed"])).values()
        for row in rivals
    }

    def ratio(row: Row) -> float:
        own = seconds.get(row["key"], inf)
        return own / fastest[row["key"]] if isfinite(own) else inf

    return _by_line(rows, ratio)


def _by_line(rows: Sequence[Row], ratio: Callable[[Row], float]) -> dict[str, list[float]]:
    return {name: [ratio(row) for row in own] for name, own in by_line(rows).items()}

"""Solvers of one run beside each other: which is best, by how much, and whether chance alone would do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from statistics import median
from typing import Any

from jigsaw_opt.sweeps.bench.against import COMPARED, LEAST_SECONDS, Change, change_of, judged
from jigsaw_opt.sweeps.bench.summary import best_objectives, geometric_mean, grouped, integral, objective_ratio

__all__ = ["Winner", "winners"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Winner:
    """The solver that is best by a measure among those with the same time limit.

    `measure, time_limit, solver`: the measure, the time limit in seconds, and the solver. `instances`: number of
    instances that it has runs of. `rivals`: the others, the closest first: each as the change from it to the winner,
    judged by the sign test after Holm's correction over all rivals.
    """

    measure: str
    time_limit: float | None
    solver: str
    instances: int
    rivals: tuple[Change, ...]


def winners(rows: Sequence[Row], level: float = 0.05) -> list[Winner]:
    """Return for each time limit and measure of `COMPARED` the winner: fewest missing values, then the least mean.

    `rows`: the rows as `jigsaw bench` keeps them.
    """
    best = best_objectives(rows)
    values: Mapping[str, Callable[[Row], float]] = {
        "objective": lambda row: objective_ratio(row, best),
        "primal_dual_integral": lambda row: max(LEAST_SECONDS, integral(row)),
    }
    limits = grouped(rows, lambda row: row["time_limit"])
    return [
        _winner(measure, limit, grouped(own, lambda row: row["solver"]), values[measure], level)
        for limit, own in limits.items()
        for measure in COMPARED
    ]


def _winner(
    measure: str, limit: float | None, solvers: Mapping[str, Sequence[Row]], value: Callable[[Row], float], level: float
) -> Winner:
    first = min(solvers, key=lambda solver: _score(solvers[solver], value))
    won = {(row["instance_sha256"], row["seed"]): row for row in solvers[first]}
    found = []
    for solver, own in solvers.items():
        pairs = [(row, won[key]) for row in own if (key := (row["instance_sha256"], row["seed"])) in won]
        change = change_of(solver, limit, measure, pairs, COMPARED[measure]) if solver != first else None
        if change is not None:
            found.append(change)
    rivals = sorted(judged(found, level), key=lambda rival: -inf if rival.ratio is None else -rival.ratio)
    return Winner(measure, limit, first, len({instance for instance, _ in won}), tuple(rivals))


def _score(rows: Sequence[Row], value: Callable[[Row], float]) -> tuple[int, float]:
    """Return number of instances without a value, and the geometric mean over the others of the median over seeds."""
    medians = [median(map(value, own)) for own in grouped(rows, lambda row: row["instance_sha256"]).values()]
    return sum(map(isinf, medians)), geometric_mean(medians) or inf

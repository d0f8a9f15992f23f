"""Runs of the same tasks compared, before and after a change or by solver, and whether chance alone would do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import exp, inf, isfinite, isinf, isnan, log
from statistics import fmean, median
from typing import Any, TypeAlias

from jigsaw_opt.sweeps.bench.summary import best_objectives, geometric_mean, grouped, integral, medians, objective_ratio

_DRAWS = 2000
Row: TypeAlias = Mapping[str, Any]
Pair: TypeAlias = tuple[Row, Row]
LEAST_SECONDS = 0.01
"""Less of the gap over time is taken for so much."""
_SAME = 1e-9
"""Logarithms of ratios that differ by less are rounding."""


def sign_test(less: int, more: int) -> float:
    """Return the p-value of the two-sided exact sign test.

    The chance that fair coins split ``less + more`` at least as unevenly.
    """
    total = less + more
    tail = sum(math.comb(total, k) for k in range(min(less, more) + 1))
    return min(1.0, float(2 * tail / 2**total))


def holm(chances: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values of several tests, in their order.

    Those of at most a level are significant, and with that chance at most any of them is so by chance alone.
    """
    adjusted, least = [1.0] * len(chances), 0.0
    for rank, k in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - rank) * chances[k]))
        adjusted[k] = least
    return adjusted


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % percentile-bootstrap interval of the mean, with fixed draws; None below two values."""
    import numpy as np

    if len(values) < 2:
        return None
    known, draw = np.array(values), np.random.default_rng(0)
    means = [known[draw.integers(len(known), size=len(known))].mean() for _ in range(_DRAWS)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a measure of a solver; less is better. Every figure is defined in docs/bench.md.

    `solver, time_limit, measure`: the solver, its time limit in seconds, and the measure. `instances, better, worse`:
    number of instances; of those where the median over seeds of the ratio is below 1, and above 1. `ratio`: geometric
    mean over instances of these medians, new by old; over those where both have a value. None where none has. `low,
    high`: ends of its 95 % interval; None for fewer than two instances. `p, adjusted_p`: exact two-sided sign test of
    `better` and `worse`; the same after Holm over all changes. `verdict`: ``worse`` or ``better`` where `adjusted_p` is
    at most the level, else ``no clear change``.
    """

    solver: str
    time_limit: float | None
    measure: str
    instances: int
    better: int
    worse: int
    ratio: float | None
    low: float | None
    high: float | None
    p: float
    adjusted_p: float = 1.0
    verdict: str = "no clear change"


@dataclass(frozen=True, slots=True)
class Against:
    """New runs beside old ones.

    `level`: level of significance, for all changes together. `pairs, unpaired`: numbers of new runs with an old one of
    the same task, and without. `hosts`: number of machines that made the pairs; times of several are not the same.
    `changes`: A solver, time limit and measure each. `least_instances`: number of instances at which a change can be
    judged at all: where it is the same way on all of them, and so many have each of the changes. `too_few`: number of
    changes that cannot be judged worse or better, since they have too few instances.
    """

    level: float
    pairs: int
    unpaired: int
    hosts: int
    changes: tuple[Change, ...]
    least_instances: int
    too_few: int

    @property
    def regressions(self) -> tuple[Change, ...]:
        """What is worse."""
        return tuple(change for change in self.changes if change.verdict == "worse")


def against(
    old: Mapping[str, Row], new: Sequence[Row], level: float = 0.05, measures: Iterable[str] | None = None
) -> Against:
    """Set runs against older ones of the same instance, solver, seed, limits and threads.

    The changes of each solver, time limit and measure, with their p-values.

    `level`: level of significance: how likely chance alone makes any change count as a regression, at most. `measures`:
    some of `COMPARED`; all by default.
    """
    pairs = [(old[row["key"]], row) for row in new if row["key"] in old]
    lines = grouped(pairs, lambda pair: (pair[1]["solver"], pair[1]["time_limit"]))
    changes = [
        change
        for (solver, limit), own in lines.items()
        for measure in (COMPARED if measures is None else measures)
        if (change := change_of(solver, limit, measure, own, COMPARED[measure]))
    ]
    hosts = {row.get("host") for pair in pairs for row in pair}
    # What Holm's correction leaves where every change is the same way on all its instances.
    clearest = holm([sign_test(0, change.instances) for change in changes])
    return Against(
        *(level, len(pairs), len(new) - len(pairs), len(hosts), tuple(judged(changes, level))),
        least_instances=next(n for n in count(1) if len(changes) * sign_test(0, n) <= level),
        too_few=sum(chance > level for chance in clearest),
    )


def judged(changes: Sequence[Change], level: float) -> list[Change]:
    """Return changes with p-values adjusted by Holm's correction over all of them, and verdicts.

    `level`: level of significance; only changes with an adjusted p-value of at most that are judged better or worse.
    """
    chances = holm([change.p for change in changes])
    return [
        replace(change, adjusted_p=p) if p > level else replace(change, adjusted_p=p, verdict=_side(change))
        for change, p in zip(changes, chances, strict=True)
    ]


def change_of(
    solver: str, limit: float | None, measure: str, pairs: Sequence[Pair], ratio: Callable[[Row, Row], float | None]
) -> Change | None:
    """Return the change of a measure over pairs of an old and a new row; None where no pair has the measure.

    `pairs`: old and new rows of the same instances.
    """
    instances = grouped(pairs, lambda pair: pair[1]["instance_sha256"]).values()
    known = [[value for pair in own if (value := ratio(*pair)) is not None] for own in instances]
    medians = [_median(values) for values in known if values]
    if not medians:
        return None
    finite = [value for value in medians if isfinite(value)]
    low, high = map(exp, bootstrap_interval(finite) or (inf, inf))
    better, worse = sum(value < -_SAME for value in medians), sum(value > _SAME for value in medians)
    return Change(
        *(solver, limit, measure, len(medians), better, worse),
        ratio=exp(fmean(finite)) if finite else None,
        low=low if isfinite(low) else None,
        high=high if isfinite(high) else None,
        p=sign_test(better, worse),
    )


def _side(change: Change) -> str:
    return "worse" if change.worse > change.better else "better"


def _median(values: Sequence[float]) -> float:
    """Return the median; halfway between ever better and ever worse nothing has changed."""
    middle = median(values)
    return 0.0 if isnan(middle) else middle


def _log_ratio(old: float, new: float, least: float) -> float:
    """Return the logarithm of new by old; no value at all is infinitely much."""
    if isfinite(old) and isfinite(new):
        return log(max(least, new) / max(least, old))
    return 0.0 if old == new else inf if new == inf else -inf


def _objective(old: Row, new: Row) -> float | None:
    # Times are whole microseconds; an objective of 0 is as good as one of 1.
    before, after = (inf if row.get("objective") is None else row["objective"] for row in (old, new))
    return _log_ratio(before, after, 1)


def _integral(old: Row, new: Row) -> float | None:
    """Return the gap integral of a row; None where a run that did not fail has none."""
    before, after = integral(old), integral(new)
    unknown = any(value == inf and row["error"] is None for value, row in ((before, old), (after, new)))
    return None if unknown else _log_ratio(before, after, LEAST_SECONDS)


COMPARED: Mapping[str, Callable[[Row, Row], float | None]] = {
    "objective": _objective,
    "primal_dual_integral": _integral,
}
"""By measure, the logarithm of new by old of a pair of rows; None where that is not known."""


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
    values = medians(rows, value)
    return sum(map(isinf, values)), geometric_mean(values) or inf

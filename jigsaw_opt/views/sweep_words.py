"""Sentences on which policy of a sweep is best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jigsaw_opt.sweeps.advice import MEASURES
from jigsaw_opt.sweeps.advice_words import doubt, in_percent
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.text import named, printable

__all__ = ["Standing", "compared", "verdicts"]


class Standing(NamedTuple):
    """A policy among those of a workload, by one measure.

    `best`: whether no policy has a better mean. `change`: change from the first of the best policies in per cent,
    paired by seed; None for that one.
    """

    mean: MeanInterval
    best: bool
    change: MeanInterval | None


def compared(own: Mapping[str, Sequence[Mapping[str, Any]]], key: str, sign: int) -> dict[str, Standing]:
    """Return how the policies stand that have values of a measure.

    `sign`: 1 where less is better, -1 where more is, 0 where neither is: then the first policy stands for the best.
    """
    values = {policy: _by_seed(rows, key) for policy, rows in own.items()}
    means = {policy: MeanInterval.of([*found.values()]) for policy, found in values.items() if found}
    best = min(means, key=lambda policy: sign * means[policy].mean, default="")
    standings = {}
    for policy, mean in means.items():
        pairs = [(values[best][seed], value) for seed, value in values[policy].items() if seed in values[best]]
        change = MeanInterval.of_changes(pairs) if best != policy else None
        standings[policy] = Standing(mean, mean.mean == means[best].mean, change)
    return standings


def _by_seed(rows: Iterable[Mapping[str, Any]], key: str) -> dict[int, float]:
    return {row["seed"]: row[key] for row in rows if row.get(key) is not None}


def verdicts(measure: str, workloads: Sequence[tuple[str, Mapping[str, Standing]]]) -> Iterator[str]:
    """Yield a sentence a workload: the best policy, by how much, and whether chance would do the same."""
    for name, standings in workloads:
        if standings:
            where = f"{printable(name)}: " if len(workloads) > 1 else ""
            yield where + _verdict(measure, standings)


def _verdict(measure: str, standings: Mapping[str, Standing]) -> str:
    label, _, unit = MEASURES[measure].partition(", ")
    best = [policy for policy, standing in standings.items() if standing.best]
    others = [policy for policy, standing in standings.items() if not standing.best]
    least = standings[best[0]].mean.mean
    if not others:
        how = "have the same" if len(best) > 1 else "has no rival here:"
        return f"{named(best)} {how} {label}, {_amount(least, unit)}."
    told = f"{named(best)} {'have' if len(best) > 1 else 'has'} the best {label}, {_amount(least, unit)}"
    second = min(others, key=lambda policy: abs(standings[policy].mean.mean - least))
    mean, _, change = standings[second]
    told += f"; the next, {printable(second)}, has {_amount(mean.mean, unit)}"
    return f"{told}." if change is None else f"{told}, {in_percent(change)}{doubt(change)}."


def _amount(value: float, unit: str) -> str:
    return f"{value:.4g}{unit and f' {unit}'}"

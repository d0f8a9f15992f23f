"""Solvers measured on instances as one HTML page that needs no network."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import inf, isfinite
from statistics import fmean, median
from typing import Any

from jigsaw_opt.simulation.results.metrics import MeasureName
from jigsaw_opt.solvers.registry import loadable_solvers
from jigsaw_opt.solvers.result import relative_gap
from jigsaw_opt.sweeps.bench.against import Against, Change, Winner, winners
from jigsaw_opt.sweeps.bench.summary import (
    Cell,
    by_line,
    line_name,
    objective_profile,
    proven_gap,
    summary,
    time_profile,
)
from jigsaw_opt.text import counted, printable
from jigsaw_opt.views.page import filled

_CALLED = {"objective": "the objective", "primal_dual_integral": "the gap over time, gap × s,"}
_MOST_RIVALS = 3
Row = Mapping[str, Any]
_LEAST_PERCENT = 0.01
_LEAST_SECONDS = 0.01
"""Left edges of the logarithmic axes; what is less is drawn there."""
_MOMENTS = 80
_NEAR = 0.01
"""Within this share of the best objective a run is taken for as good."""
_MEASURES = {
    "objective_ratio": MeasureName(
        "objective ratio", "", "objective by the best one of all runs, geometric mean; 1 is best"
    ),
    "mean_gap": MeasureName(
        "mean gap",
        "share",
        "how far a plan may be above the best possible: (objective − bound) / objective; median over seeds, mean"
        " over instances; less is better",
    ),
    "worst_gap": MeasureName("worst gap", "share", "the greatest of these medians; less is better"),
    "primal_dual_integral": MeasureName(
        "gap × s", "s", "the gap added up over time; a second without a plan counts as 1; less is better"
    ),
    "seconds_to_objective": MeasureName(
        "s to objective", "s", "until the final objective was found, geometric mean; less is better"
    ),
    "time_ratio": MeasureName(
        "time ratio", "", "time to an objective that all reach by that of the fastest, geometric mean; 1 is best"
    ),
    "runs": MeasureName("runs", "", "of all instances and seeds"),
    "with_plan": MeasureName("plans", "", "runs that found a plan"),
    "proven": MeasureName("proven", "", "runs that proved their plan optimal, or that there is none"),
    "certified": MeasureName("certified", "", "runs whose bound, or infeasibility, has a proof that was checked"),
    "certified_optimal": MeasureName("certified optimal", "", "runs whose plan such a proof shows to be optimal"),
    "errors": MeasureName("errors", "", "runs that failed"),
}
"""By field of `Cell`; each is defined in docs/bench.md."""


def verdicts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence a time limit and measure: the best solver, by how much, and whether chance would do the same."""
    lines = by_line(rows)
    for winner in winners(rows):
        if winner.rivals:
            yield _compared(winner)
        elif winner.measure == "objective":
            name = line_name(winner.solver, winner.time_limit)
            runs = lines[name]
            gap = 100 * sum(map(proven_gap, runs)) / len(runs)
            yield (
                f"{printable(name)} has no rival here: {counted(len(runs), 'run')} of"
                f" {counted(winner.instances, 'instance')}, with a mean proven gap of {gap:.3g} %."
            )
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        yield f"{counted(failed, 'run')} failed; that counts as no plan."
    optimal = [row.get("certified") is True for row in rows if row.get("status") == "optimal"]
    if optimal:
        yield f"{sum(optimal):,} of {counted(len(optimal), 'run')} with an optimal plan are certified optimal."


def _compared(winner: Winner) -> str:
    limit = "" if winner.time_limit is None else f" after {winner.time_limit:g} s"
    by = f"By {_CALLED[winner.measure]}{limit}"
    best = printable(winner.solver)
    if not any(rival.better or rival.worse for rival in winner.rivals):
        others = " and ".join(printable(rival.solver) for rival in winner.rivals)
        return f"{by}, {best} and {others} are alike on all of {counted(winner.instances, 'instance')}."
    told = [f"{by}, {best} is best over {counted(winner.instances, 'instance')}."]
    told += [_rival(rival) for rival in winner.rivals[:_MOST_RIVALS]]
    more = len(winner.rivals) - _MOST_RIVALS
    if more > 0:
        told.append(f"{counted(more, 'more solver')} behind these.")
    return " ".join(told)


def _rival(change: Change) -> str:
    """Return how the winner stands to a rival; a ratio is that of the winner by the rival."""
    equal = change.instances - change.better - change.worse
    split = f"better on {change.better}, worse on {change.worse}, equal on {equal}"
    doubt = "may be chance" if change.verdict == "no clear change" else "is beyond chance"
    return f"{_difference(change)}: {split}, which {doubt} (sign test, p = {change.adjusted_p:.2g})."


def _difference(change: Change) -> str:
    rival = printable(change.solver)
    if change.ratio is None:
        return f"{rival} has no value on any instance where it has one"
    less = f"It has {abs(100 * (change.ratio - 1)):.3g} % {'less' if change.ratio <= 1 else 'more'} than {rival}"
    if change.low is None or change.high is None or change.low == change.high:
        return less
    return f"{less} (95 % interval {_signed(change.low)} to {_signed(change.high)} %)"


def _signed(ratio: float) -> str:
    return f"{round(100 * (ratio - 1), 4):z.3g}".replace("-", "−")


def bench_html(rows: Sequence[Row], older: tuple[str, Against] | None = None) -> str:
    """Return the page: gap profile, mean gap over time, and tables with each solver and time limit side by side.

    Names of instances and solvers are data to the page and never markup.

    `rows`: the rows as `jigsaw bench` keeps them. `older`: where older runs of the same tasks are, and how these
    compare with them.
    """
    lines = by_line(rows)
    gaps = sorted({_LEAST_PERCENT, 100.0, *(_percent(row) for row in rows)})
    profiles = {
        "excess": {name: [100 * (ratio - 1) for ratio in own] for name, own in objective_profile(rows).items()},
        "delay": time_profile(rows, _NEAR),
    }
    axes = {"excess": _axis(profiles["excess"], _LEAST_PERCENT), "delay": _axis(profiles["delay"], 1.0)}
    moments = _moments(rows)
    instances = [*_instances(rows, list(lines))]
    data = {
        "runs": len(rows),
        "about": f"{counted(len(rows), 'run')} of {counted(len(instances), 'instance')}",
        "verdicts": [*verdicts(rows)],
        "solvers": _solvers(rows),
        "gaps": gaps,
        "moments": moments,
        **axes,
        "lines": [
            {
                "name": printable(name),
                "profile": _shares([inf if proven_gap(row) == 1 else _percent(row) for row in own], gaps),
                "curve": _curve(own, moments),
                **{key: _shares(profiles[key][name], axes[key]) for key in axes},
            }
            for name, own in lines.items()
        ],
        "measures": [{"key": key, **measure._asdict()} for key, measure in _MEASURES.items()],
        "cells": [_cell(cell) for cell in summary(rows)],
        "instances": instances,
        "against": older and _against(*older),
    }
    return filled("bench.html", "solvers side by side", data)


def _against(folder: str, judged: Against) -> dict[str, object]:
    changes = [
        {
            **asdict(change),
            "line": printable(line_name(change.solver, change.time_limit)),
            "measure": _MEASURES[change.measure].name if change.measure in _MEASURES else change.measure,
        }
        for change in judged.changes
    ]
    return {**asdict(judged), "folder": printable(folder), "changes": changes}


def _solvers(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return what the solvers that are installed say of themselves."""
    found = dict.fromkeys(str(row["solver"]) for row in rows)
    known = loadable_solvers()
    return [(printable(name), known[name].display_name) for name in found if name in known]


def _cell(cell: Cell) -> dict[str, object]:
    line = printable(line_name(cell.solver, cell.time_limit))
    return {**asdict(cell), "set": printable(cell.set), "line": line}


def _percent(row: Row) -> float:
    return max(_LEAST_PERCENT, 100 * proven_gap(row))


def _axis(profile: Mapping[str, Sequence[float]], least: float) -> list[float]:
    """Return where any line of a profile may rise."""
    values = {max(least, value) for own in profile.values() for value in own if isfinite(value)}
    return sorted({least, *values})


def _shares(values: Sequence[float], axis: Sequence[float]) -> list[float]:
    """Return the percentage of the values at most each place of an axis; smaller ones count at its beginning."""
    known = sorted(values)
    return [100 * bisect_right(known, place) / len(known) for place in axis]


def _moments(rows: Sequence[Row]) -> list[float]:
    """Return seconds at equal distances on a logarithmic axis, until the last run has ended."""
    end = max((_end(row) for row in rows), default=_LEAST_SECONDS)
    return [_LEAST_SECONDS * (end / _LEAST_SECONDS) ** (k / (_MOMENTS - 1)) for k in range(_MOMENTS)]


def _end(row: Row) -> float:
    """Return when a run has ended at the latest."""
    return max(_LEAST_SECONDS, row.get("seconds") or 0, row["time_limit"] or 0)


def _curve(rows: Sequence[Row], moments: Sequence[float]) -> list[float | None]:
    """Return mean proven gap of the runs in percent at each moment; nothing after the last of them has ended."""
    end, known = max(map(_end, rows)), [[*_steps(row)] for row in rows]
    return [
        100 * fmean(next(gap for at, gap in reversed(steps) if at <= moment) for steps in known)
        if moment <= end * 1.0001
        else None
        for moment in moments
    ]


def _steps(row: Row) -> Iterator[tuple[float, float]]:
    """Yield from when on a run has which proven gap."""
    yield 0.0, 1.0
    for at, objective, bound in row.get("trajectory", ()):
        yield at, 1.0 if objective is None or bound is None else relative_gap(objective, bound)
    if row["error"] is None:
        yield row.get("seconds") or 0.0, proven_gap(row)


def _instances(rows: Sequence[Row], lines: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield every instance with the median over seeds of its proven gap, a solver and time limit at a time."""
    found: dict[str, dict[str, list[float]]] = {}
    called = {row["instance_sha256"]: row["instance"] for row in rows}
    for row in rows:
        line = line_name(row["solver"], row["time_limit"])
        found.setdefault(row["instance_sha256"], {}).setdefault(line, []).append(proven_gap(row))
    for sha256, own in found.items():
        gaps = [median(own[line]) if line in own else None for line in lines]
        yield {"name": printable(called[sha256]), "gaps": gaps}

"""Judges the runs: differences between SPB and full depth, paired by seed, and what SPB saves."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import groupby
from math import inf
from statistics import fmean
from typing import Any, Literal

from jigsaw_opt.sweeps.intervals import MeanInterval
from spb.design import Design
from spb.training import Run

Rows = Mapping[str, Mapping[str, Any]]
Verdict = Literal["within", "worse", "open"]

MARGIN_POINTS = 0.5
ITERATION, ACCURACY, LOSS, BLOCKS = 0, 1, 2, 3
"""Columns of a point of a run; blocks by level are the rest of it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """SPB in one way beside full depth: accuracies in per cent, what is beyond full depth as mean and half interval.

    What is saved is in per cent of full depth, by measured times of blocks and by operations. The verdict is ``within``
    if the whole interval lies above -0.5 points, ``worse`` if it lies below, else ``open``.
    """

    subject: str
    workers: int
    method: str
    seeds: int
    optimiser: str
    full_rate: float
    rate: float
    full_accuracy: float
    accuracy: float
    points: float
    points_half: float
    loss: float
    loss_half: float
    time_saved: float
    operations_saved: float
    verdict: Verdict


def verdict(points: MeanInterval) -> Verdict:
    """What the interval of a difference in accuracy, in points, allows to say."""
    if points.mean - points.half >= -MARGIN_POINTS:
        return "within"
    return "worse" if points.mean + points.half < -MARGIN_POINTS else "open"


def findings(design: Design, rows: Rows) -> list[Finding]:
    """A finding for each comparison and number of workers that has a pair of runs."""
    found = []
    for (name, workers), group in groupby(design.pairs(rows), lambda pair: (pair[0], pair[1].workers)):
        pairs = [(full, spb) for _, full, spb in group if {design.key(full), design.key(spb)} <= rows.keys()]
        if pairs:
            found.append(_finding(design, rows, name, workers, pairs))
    return found


def _finding(design: Design, rows: Rows, name: str, workers: int, pairs: Sequence[tuple[Run, Run]]) -> Finding:
    full, spb = pairs[0]
    ends = [(_end(design, rows, a), _end(design, rows, b)) for a, b in pairs]
    points = MeanInterval.of([100 * (b[ACCURACY] - a[ACCURACY]) for a, b in ends])
    loss = MeanInterval.of([b[LOSS] - a[LOSS] for a, b in ends])
    blocks = design.block_row(rows, workers)
    saved = [_saved(blocks[measure], ends) for measure in ("block_us", "operations")]
    accuracies = (fmean(100 * end[ACCURACY] for end in column) for column in zip(*ends, strict=True))
    return Finding(
        *(design.subject.name, workers, name, len(pairs), full.setting.optimiser, full.rate, spb.rate, *accuracies),
        *(points.mean, points.half, loss.mean, loss.half, *saved, verdict(points)),
    )


def _end(design: Design, rows: Rows, run: Run) -> list[float]:
    """The last point of a run; a loss that is no number counts as infinite."""
    point = rows[design.key(run)]["points"][-1]
    return [inf if value != value else value for value in point]


def _cost(costs: Sequence[float], point: Sequence[float]) -> float:
    """What all blocks until `point` cost."""
    return sum(cost * count for cost, count in zip(costs, point[BLOCKS:], strict=True))


def _saved(costs: Sequence[float], ends: Sequence[tuple[list[float], list[float]]]) -> float:
    full, spb = (sum(_cost(costs, point) for point in column) for column in zip(*ends, strict=True))
    return 100 * (1 - spb / full)


@dataclass(frozen=True, slots=True)
class Curve:
    """How one method learns, over all seeds: GPU-time of all blocks until a point, mean accuracy in per cent."""

    subject: str
    workers: int
    method: str
    iteration: int
    gpu_seconds: float
    accuracy: float
    half: float
    loss: float


def curves(design: Design, rows: Rows) -> list[Curve]:
    """All points of all methods, full depth once for the main optimiser, in the order of the comparisons."""
    runs: dict[tuple[str, int], list[str]] = {}
    first = next(iter(design.comparisons))
    for name, full, spb in design.pairs(rows):
        for method, run in (("full", full), (name, spb)) if name == first else ((name, spb),):
            runs.setdefault((method, run.workers), []).append(design.key(run))
    return [
        point
        for (method, workers), keys in runs.items()
        for point in _curve(design, rows, method, workers, [rows[key]["points"] for key in keys if key in rows])
    ]


def _curve(
    design: Design, rows: Rows, method: str, workers: int, runs: Sequence[Sequence[Sequence[float]]]
) -> Iterable[Curve]:
    block_us = design.block_row(rows, workers)["block_us"]
    for points in zip(*runs, strict=True):
        accuracy = MeanInterval.of([100 * point[ACCURACY] for point in points])
        yield Curve(
            *(design.subject.name, workers, method, int(points[0][ITERATION])),
            fmean(_cost(block_us, point) for point in points) / 1e6,
            *(accuracy.mean, accuracy.half, fmean(point[LOSS] for point in points)),
        )


def csv_table(records: Sequence[Finding] | Sequence[Curve]) -> str:
    """Records as CSV with a header line."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in fields(records[0])])
    writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in astuple(r)] for r in records)
    return text.getvalue()


def markdown(found: Sequence[Finding]) -> str:
    """Findings as a table, a line each."""
    titles = (
        *("task", "workers", "SPB", "seeds", "optimiser, rate of full and SPB", "full %", "SPB %"),
        *("points, 95 %", "loss, 95 %", "GPU-time saved", "operations saved", "verdict"),
    )
    lines = [_line(titles), _line(["---"] * len(titles)), *(_line(_cells(finding)) for finding in found)]
    return "\n".join(lines) + "\n"


def _cells(finding: Finding) -> tuple[str, ...]:
    rates = f"{finding.optimiser} {finding.full_rate:g}, {finding.rate:g}"
    points, loss = MeanInterval(finding.points, finding.points_half), MeanInterval(finding.loss, finding.loss_half)
    return (
        *(finding.subject, str(finding.workers), finding.method, str(finding.seeds), rates),
        *(f"{finding.full_accuracy:.2f}", f"{finding.accuracy:.2f}", str(points), str(loss)),
        *(f"{finding.time_saved:.0f} %", f"{finding.operations_saved:.0f} %", finding.verdict),
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"

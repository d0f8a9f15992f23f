"""Judges the runs, paired by seed: against full depth at equal iterations, and at equal GPU-time."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product
from math import inf, isnan, nan
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt
from common import line

from jigsaw_opt.sweeps.intervals import MeanInterval
from spb.design import Comparison, Design, Rows, controls
from spb.training import Run

Learns = Literal["within", "worse", "open"]
Pays = Literal["pays", "does not pay", "open", "control"]

MARGIN_POINTS = 0.5
RESAMPLED = 2000
ACCURACY, LOSS, BLOCKS = 1, 2, 3
"""Columns of a point of a run; blocks by level are the rest of it."""
SLACK = 1.02
"""Up to so much more GPU-time than full depth counts as equal: iterations are whole, and draws of levels differ."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A way beside full depth, means over seeds: accuracies in per cent, ``_half`` is half of a 95 % interval.

    `points` and `more_loss` are what is beyond full depth with all its iterations. `frontier_points` and
    `frontier_loss` are what is beyond full depth with as many iterations as take the way's GPU-time, by a line between
    two of the controls; no number where the GPU-time is outside of theirs. `work_points` are the same at equal
    operations, which no overhead is in. GPU-time and operations are in per cent of full depth. `target` is the GPU-time
    after which the mean accuracy first is that of full depth at its end, with the percentiles of resampled seeds (Efron
    and Tibshirani 1993); infinite where it never is.
    """

    subject: str
    workers: int
    way: str
    seeds: int
    optimiser: str
    rate: float
    batch: int
    iterations: int
    accuracy: float
    loss: float
    points: float
    points_half: float
    more_loss: float
    more_loss_half: float
    gpu_seconds: float
    gpu_time: float
    operations: float
    frontier_points: float
    frontier_half: float
    frontier_loss: float
    frontier_loss_half: float
    work_points: float
    work_half: float
    target: float
    target_low: float
    target_high: float
    learns: Learns
    pays: Pays


def learns(points: MeanInterval) -> Learns:
    """``within`` if the whole interval lies above -0.5 points, ``worse`` if it lies below, else ``open``."""
    if points.mean - points.half >= -MARGIN_POINTS:
        return "within"
    return "worse" if points.mean + points.half < -MARGIN_POINTS else "open"


def pays(frontier: MeanInterval) -> Pays:
    """Whether the whole interval lies above or below what full depth reaches in the same GPU-time."""
    if frontier.mean - frontier.half > 0:
        return "pays"
    return "does not pay" if frontier.mean + frontier.half < 0 else "open"


@dataclass(frozen=True)
class Curve:
    """A run by its points: GPU-seconds, operations, accuracy in per cent, loss (infinite where it is no number)."""

    seconds: npt.NDArray[np.float64]
    operations: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]
    loss: npt.NDArray[np.float64]

    @classmethod
    def of(cls, design: Design, rows: Rows, run: Run) -> Curve:
        """The curve of a run that has a row; its blocks cost what those with its batch were measured to."""
        points = np.array(rows[design.key(run)]["points"], dtype=float)
        costs = design.block_row(rows, run.workers, run.batch)
        seconds = points[:, BLOCKS:] @ np.array(costs["block_us"]) / 1e6
        operations = points[:, BLOCKS:] @ np.array(costs["operations"])
        loss = np.nan_to_num(points[:, LOSS], nan=inf, posinf=inf)
        return cls(seconds, operations, 100 * points[:, ACCURACY], loss)


def findings(design: Design, rows: Rows) -> list[Finding]:
    """A finding for each way and number of workers that has a seed with all runs it is compared with."""
    found = []
    for workers, (name, way) in product(design.workers, design.ways.items()):
        compared = [way, *controls(way.setting).values()]
        runs = [[design.run(rows, each, workers, seed) for each in compared] for seed in range(design.subject.seeds)]
        whole = [row for row in runs if all(design.key(run) in rows for run in row)]
        if whole:
            curves = [[Curve.of(design, rows, run) for run in row] for row in whole]
            found.append(_finding(design, name, way, whole[0][0], curves))
    return found


def _finding(design: Design, name: str, way: Comparison, run: Run, curves: Sequence[Sequence[Curve]]) -> Finding:
    """`curves` are by seed that of the way, of full depth, and of full depth with fewer iterations."""
    own, full = [row[0] for row in curves], [row[1] for row in curves]
    points = MeanInterval.of([float(a.accuracy[-1] - b.accuracy[-1]) for a, b in zip(own, full, strict=True)])
    loss = MeanInterval.of([float(a.loss[-1] - b.loss[-1]) for a, b in zip(own, full, strict=True)])
    beyond = [
        (*_beyond(mine, frontier, "seconds"), _beyond(mine, frontier, "operations")[0]) for mine, *frontier in curves
    ]
    in_time, loss_in_time, in_work = (MeanInterval.of(column) for column in zip(*beyond, strict=True))
    is_control = way in controls(way.setting).values()
    seconds = fmean(float(curve.seconds[-1]) for curve in own)
    return Finding(
        *(design.subject.name, run.workers, name, len(curves)),
        *(design.subject.optimiser, run.rate, run.batch, run.iterations),
        *(fmean(float(c.accuracy[-1]) for c in own), fmean(float(c.loss[-1]) for c in own)),
        *(points.mean, points.half, loss.mean, loss.half),
        *(seconds, 100 * seconds / fmean(float(curve.seconds[-1]) for curve in full)),
        100 * fmean(float(c.operations[-1]) for c in own) / fmean(float(c.operations[-1]) for c in full),
        *(in_time.mean, in_time.half, loss_in_time.mean, loss_in_time.half, in_work.mean, in_work.half),
        *(*_target(own, full), learns(points), "control" if is_control else pays(in_time)),
    )


def _beyond(own: Curve, frontier: Sequence[Curve], by: Literal["seconds", "operations"]) -> tuple[float, float]:
    """Accuracy and loss at the end beyond those of full depth in the same GPU-time, or with as many operations."""
    ordered = sorted(frontier, key=lambda curve: float(getattr(curve, by)[-1]))
    at, spent = float(getattr(own, by)[-1]), [float(getattr(curve, by)[-1]) for curve in ordered]
    if not spent[0] <= at <= SLACK * spent[-1]:
        return nan, nan
    accuracy = np.interp(at, spent, [curve.accuracy[-1] for curve in ordered])
    loss = np.interp(at, spent, [curve.loss[-1] for curve in ordered])
    return float(own.accuracy[-1] - accuracy), float(own.loss[-1] - loss)


def _target(own: Sequence[Curve], full: Sequence[Curve]) -> tuple[float, float, float]:
    """GPU-time to full depth's accuracy in per cent of full depth's: of all seeds, and an interval."""
    count = len(own)
    accuracy = np.array([curve.accuracy for curve in own])
    ends = np.array([curve.accuracy[-1] for curve in full])
    shares = np.mean([curve.seconds for curve in own], axis=0) / np.mean([curve.seconds[-1] for curve in full]) * 100

    def reached(seeds: npt.NDArray[np.intp]) -> float:
        means, wanted = accuracy[seeds].mean(axis=0), float(ends[seeds].mean())
        there = np.flatnonzero(means >= wanted)
        if not len(there):
            return inf
        last = int(there[0])
        return float(np.interp(wanted, means[last - 1 : last + 1], shares[last - 1 : last + 1]) if last else shares[0])

    if count == 1:
        return reached(np.arange(1)), nan, nan
    drawn = sorted(map(reached, np.random.default_rng(0).integers(count, size=(RESAMPLED, count))))
    return reached(np.arange(count)), drawn[RESAMPLED * 25 // 1000], drawn[RESAMPLED * 975 // 1000]


def csv_table(records: Sequence[Finding]) -> str:
    """Records as CSV with a header line."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in fields(records[0])])
    writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in astuple(r)] for r in records)
    return text.getvalue()


def markdown(found: Sequence[Finding]) -> str:
    """Findings as a table, a line each."""
    titles = (
        *("task", "workers", "way", "seeds", "rate", "batch", "iterations", "accuracy %", "points, 95 %"),
        *("GPU-time %", "operations %", "points at equal GPU-time, 95 %", "loss at equal GPU-time, 95 %"),
        "points at equal operations, 95 %",
        *("GPU-time % to full depth's accuracy, 95 %", "learns", "pays"),
    )
    lines = [line(titles), line(["---"] * len(titles)), *(line(_cells(finding)) for finding in found)]
    return "\n".join(lines) + "\n"


def _cells(f: Finding) -> tuple[str, ...]:
    beyond = (
        (f.frontier_points, f.frontier_half),
        (f.frontier_loss, f.frontier_loss_half),
        (f.work_points, f.work_half),
    )
    shown = ["" if f.pays == "control" or isnan(mean) else str(MeanInterval(mean, half)) for mean, half in beyond]
    low, target, high = (f"{value:.0f}" for value in (f.target_low, f.target, f.target_high))
    return (
        *(f.subject, str(f.workers), f.way, str(f.seeds), f"{f.rate:g}", str(f.batch), str(f.iterations)),
        *(f"{f.accuracy:.2f}", str(MeanInterval(f.points, f.points_half)), f"{f.gpu_time:.0f}", f"{f.operations:.0f}"),
        *(*shown, f"{target} ({low} to {high})".replace("inf", "∞"), f.learns, f.pays),
    )

"""Draws how full depth and SPB learn, by iterations and by GPU-time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from spb.summary import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("full", "rotation", "free", "half of the workers full", "warm-up, own rate, equal time")
COLOURS = ("#000000", "#0072b2", "#e69f00", "#cc79a7", "#009e73")
"""Of the colours that colour-blind readers can tell apart (Okabe and Ito)."""


def draw(points: Sequence[Curve], workers: int, path: Path) -> None:
    """Write a picture with a row a subject: accuracy by iterations at the left, by GPU-time at the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chosen = [point for point in points if point.workers == workers and point.method in SHOWN]
    subjects = list(dict.fromkeys(point.subject for point in chosen))
    figure = Figure(figsize=(9, 2.6 * len(subjects)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(subjects), 2, squeeze=False, sharey="row")
    for subject, (left, right) in zip(subjects, panels, strict=True):
        _fill(left, right, [point for point in chosen if point.subject == subject])
        left.set_ylabel(f"{subject}\naccuracy on held-out data, %")
    panels[-1][0].set_xlabel("iterations")
    panels[-1][1].set_xlabel(f"GPU-time of {workers} workers, s")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.savefig(path, dpi=80)


def _fill(left: Axes, right: Axes, points: Sequence[Curve]) -> None:
    """The lines of one subject, with the interval over seeds as a band."""
    for method, group in groupby(sorted(points, key=lambda p: SHOWN.index(p.method)), lambda p: p.method):
        line = list(group)
        mean, half = [p.accuracy for p in line], [p.half for p in line]
        low, high = ([m + sign * h for m, h in zip(mean, half, strict=True)] for sign in (-1, 1))
        colour = COLOURS[SHOWN.index(method)]
        for panel, when in ((left, [p.iteration for p in line]), (right, [p.gpu_seconds for p in line])):
            panel.plot(when, mean, color=colour, label=method, linewidth=1.2)
            panel.fill_between(when, low, high, color=colour, alpha=0.12, linewidth=0)

"""Draws accuracy over GPU-time: full depth with fewer and all iterations as a line, every way as a point."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from spb.design import COMPARISONS
from spb.summary import Finding

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""Of the colours that colour-blind readers can tell apart (Okabe and Ito)."""
MARKS = "osD^v"


def draw(found: Sequence[Finding], workers: int, path: Path) -> None:
    """Write a picture with a panel a subject; ways of other settings than the main one are left out.

    A bar is the interval of the difference to the line at the same GPU-time, or, outside of the line, that of the
    difference to full depth.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [f for f in found if f.workers == workers and _in_main_setting(f)]
    subjects = list(dict.fromkeys(f.subject for f in shown))
    ways = list(dict.fromkeys(f.way for f in shown if f.pays != "control"))
    figure = Figure(figsize=(4.5 * max(1, len(subjects)), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for subject, panel in zip(subjects, figure.subplots(1, max(1, len(subjects)), squeeze=False)[0], strict=True):
        own = [f for f in shown if f.subject == subject]
        frontier = sorted((f.gpu_time, f.accuracy) for f in own if f.pays == "control")
        panel.plot(*zip(*frontier, strict=True), color="#000000", marker=".", label="full, 60 to 100 % of iterations")
        for finding in own:
            if finding.pays != "control":
                look = ways.index(finding.way)
                half = finding.frontier_half if isfinite(finding.frontier_half) else finding.points_half
                bar = [half if isfinite(half) else 0.0]
                style = {"color": COLOURS[look % len(COLOURS)], "marker": MARKS[look % len(MARKS)], "capsize": 2}
                panel.errorbar([finding.gpu_time], [finding.accuracy], bar, label=finding.way, linestyle="", **style)
        panel.set_title(subject, fontsize=10)
        panel.set_xlabel(f"GPU-time of {workers} workers, % of full depth")
    figure.axes[0].set_ylabel("accuracy on held-out data, %")
    handles = {label: mark for axes in figure.axes for mark, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=80)


def _in_main_setting(finding: Finding) -> bool:
    if finding.pays == "control":
        return not finding.way.endswith(("sharded", "constant rate"))
    return COMPARISONS[finding.way].rise_and_fall and not COMPARISONS[finding.way].sharded

"""Gap profiles as a PNG picture, through matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from jigsaw_opt.views.image import drawn_image, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gap_profile_png"]

_STYLES = ("solid", "dashed", "dashdot", "dotted")
_LEAST_PERCENT = 0.01
"""Left edge of the picture; the axis is logarithmic, so smaller gaps, 0 among them, are drawn there."""


def gap_profile_png(profiles: Mapping[str, Sequence[float]], dots_per_inch: int = 120) -> bytes:
    """Return a picture of the share of runs that have certified each gap, one line a profile."""
    return drawn_image((8, 5), "gap profile", "png", lambda axes: _draw(axes, profiles), dots_per_inch)


def _draw(axes: Axes, profiles: Mapping[str, Sequence[float]]) -> None:
    # Lines that coincide, as those of solvers that prove everything, show through each other's dashes.
    lines = [
        axes.step(*_steps(gaps), where="post", linestyle=style)[0]
        for gaps, style in zip(profiles.values(), cycle(_STYLES))
    ]
    axes.set(
        xscale="log",
        xlim=(_LEAST_PERCENT, 100),
        ylim=(0, 1.02),
        xlabel="certified gap, %",
        ylabel="share of runs with at most this gap",
    )
    axes.grid(alpha=0.3)
    if profiles:
        axes.legend(lines, list(map(label, profiles)))


def _steps(gaps: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return percent and share at which the line rises; the ends reach both edges."""
    percents = [_LEAST_PERCENT, *(max(_LEAST_PERCENT, 100 * gap) for gap in gaps), 100.0]
    # A gap of 1 is a run without a plan: it never counts as certified.
    certified = sum(gap < 1 for gap in gaps)
    shares = [min(k, certified) / len(gaps) for k in range(len(gaps) + 1)]
    return percents, [*shares, shares[-1]]

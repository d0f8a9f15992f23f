"""A plan as a PNG picture, through matplotlib (extra ``plot``)."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

from jigsaw_opt.errors import MissingEngineError, UsageError
from jigsaw_opt.text import printable
from jigsaw_opt.views.label import label, plain_text
from jigsaw_opt.views.lanes import Lane, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["timeline_png"]

_LEGEND_JOBS = 24
_LETTERS = 160
"""Letters of an operation's name that fit side by side into the picture."""
_MOST_US = 2**63


def timeline_png(picture: Picture, dots_per_inch: int = 120) -> bytes:
    """The timeline as PNG bytes, blocks shaded by level.

    Raises
    ------
    MissingEngineError
        matplotlib is not installed.
    UsageError
        The plan ends so late that no axis of floats reaches there.
    """
    if picture.end_us > _MOST_US:
        raise UsageError(f"a plan of more than {_MOST_US} us cannot be drawn to scale")
    if find_spec("matplotlib") is None:
        raise MissingEngineError("matplotlib", "jigsaw-opt[plot]")
    from matplotlib.figure import Figure

    data = BytesIO()
    with plain_text():
        figure = Figure(figsize=(14, min(60.0, 1.6 + 0.28 * len(picture.lanes))), layout="constrained")
        axes = figure.add_subplot()
        _draw_lanes(axes, picture)
        _label(axes, picture)
        figure.savefig(data, format="png", dpi=dots_per_inch, metadata={"Title": printable(picture.instance.name)})
    return data.getvalue()


def _draw_lanes(axes: Axes, picture: Picture) -> None:
    from matplotlib.colors import to_rgba

    colours, depths = picture.colours, picture.depths
    for row, lane in enumerate(picture.lanes):
        spans = [(i.start_us / 1000, (i.end_us - i.start_us) / 1000) for i in lane.intervals]
        # One call a lane: a call a bar takes thirty times as long.
        shades = [to_rgba(colours[i.job], _opacity(i.level, depths[i.job])) for i in lane.intervals]
        axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=shades, edgecolors="black", linewidth=0.2)
        _name_operations(axes, picture, row, lane)


def _name_operations(axes: Axes, picture: Picture, row: int, lane: Lane) -> None:
    """Names of operations of shapes, where they fit into their bars."""
    operations = picture.operations
    for interval in lane.intervals:
        names, length = operations[interval.job], interval.end_us - interval.start_us
        if names and _LETTERS * length >= len(names[interval.number]) * picture.end_us:
            middle = (interval.start_us + interval.end_us) / 2000
            axes.text(middle, row, label(names[interval.number]), ha="center", va="center", fontsize=6, clip_on=True)


def _opacity(level: int, depth: int) -> float:
    return 0.45 + 0.55 * level / depth if level else 0.8


def _label(axes: Axes, picture: Picture) -> None:
    from matplotlib.patches import Patch

    plan = picture.plan
    axes.set_yticks(range(len(picture.lanes)), [label(lane.name) for lane in picture.lanes], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1, picture.end_us) / 1000)
    axes.set_xlabel("ms")
    title = f"{label(picture.instance.name)}: objective {plan.objective}, bound {plan.bound} ({plan.status})"
    filled = picture.filled
    axes.set_title(title if filled is None else f"{title}, {100 * filled:.1f} % of holes filled", fontsize=10)
    names = [label(job.name) for job in plan.jobs[:_LEGEND_JOBS]]
    jobs = [Patch(color=colour) for colour in picture.colours[: len(names)]]
    # Labels on their own: a handle's label that begins with an underscore is taken for none.
    axes.legend(jobs, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)

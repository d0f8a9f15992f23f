"""Plans as still pictures, PNG or SVG, through matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jigsaw_opt.errors import MissingEngineError, UsageError
from jigsaw_opt.text import printable
from jigsaw_opt.views.lanes import Lane, MemoryLane, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ImageForm: TypeAlias = Literal["png", "svg"]
_LEGEND_JOBS = 24
_LETTERS = 160
"""Letters of an operation's name that fit side by side into the picture."""
_MOST_US = 2**63
_HOUR_US = 3_600_000_000
_UNITS = ((1000, "ms"), (1_000_000, "s"), (60_000_000, "min"), (_HOUR_US, "h"), (24 * _HOUR_US, "days"))
_TICKS = 10
"""Least number of units on the axis, which is in the largest unit that has as many."""


def label(name: str) -> str:
    """Return what to give matplotlib so that it draws `name`: between two dollar signs it would look for a formula."""
    return printable(name).replace("$", r"\$")


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw texts as `label` expects it, and without TeX, whatever the user's settings are; twice the same in SVG."""
    import warnings

    from matplotlib import rc_context

    drawn = rc_context(
        {"text.usetex": False, "text.parse_math": True, "svg.fonttype": "none", "svg.hashsalt": "jigsaw"}
    )
    with drawn, warnings.catch_warnings():
        # A character that the font lacks is drawn as a box; nobody needs to be told for each.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def drawn_image(
    size: tuple[float, float],
    title: str,
    form: ImageForm,
    draw: Callable[..., None],
    dots_per_inch: int = 120,
    panels: int = 1,
) -> bytes:
    """Return a figure as the bytes of a file; the same drawing gives the same bytes.

    `form`: form of the file. Text in SVG is text, in the fonts of whoever looks at it. `draw`: draws into the axes; it
    is called with those of each panel, the uppermost first.
    """
    if find_spec("matplotlib") is None:
        raise MissingEngineError("matplotlib", "jigsaw-opt[plot]")
    from matplotlib.figure import Figure

    data = BytesIO()
    about: dict[str, Any] = {"Title": printable(title)} | ({"Date": None} if form == "svg" else {})
    with plain_text():
        figure = Figure(figsize=size, layout="constrained")
        draw(*figure.subplots(panels, sharex=True, squeeze=False)[:, 0])
        figure.savefig(data, format=form, dpi=dots_per_inch, metadata=about)
    return data.getvalue()


def timeline_image(picture: Picture, form: ImageForm = "png", dots_per_inch: int = 120) -> bytes:
    """Return the timeline as bytes of a file, blocks shaded by level."""
    if picture.end_us > _MOST_US:
        raise UsageError(f"a plan of more than {_MOST_US} us cannot be drawn to scale", code="too-large", path="end_us")
    unit = next((entry for entry in reversed(_UNITS) if picture.end_us >= _TICKS * entry[0]), _UNITS[0])

    def draw(axes: Axes) -> None:
        draw_lanes(axes, picture, unit[0])
        _label(axes, picture, *unit)

    size = (14, min(60.0, 1.6 + 0.28 * len(list(picture.rows))))
    return drawn_image(size, picture.instance.name, form, draw, dots_per_inch)


def draw_lanes(axes: Axes, picture: Picture, unit: int) -> None:
    """Draw the bars of a picture, the first lane at the height 0 and each next one below it.

    `unit`: microseconds that have the length 1 on the axis.
    """
    from matplotlib.colors import to_rgba

    colours, depths = picture.colours, picture.depths
    rows = list(picture.rows)
    for row, lane in enumerate(rows):
        if isinstance(lane, MemoryLane):
            _draw_memory(axes, picture, row, lane, unit)
            continue
        spans = [(i.start_us / unit, (i.end_us - i.start_us) / unit) for i in lane.intervals]
        # One call a lane: a call a bar takes thirty times as long.
        shades = [to_rgba(colours[i.job], _opacity(lane, i.level, depths[i.job])) for i in lane.intervals]
        edge = 0.4 if lane.has_phases else 0.2
        axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=shades, edgecolors="black", linewidth=edge)
        if not lane.has_phases:
            _name_operations(axes, picture, row, lane, unit)
    for row, (lane, following) in enumerate(pairwise(rows)):
        if (lane.group if isinstance(lane, Lane) else 0) != (following.group if isinstance(following, Lane) else 0):
            axes.axhline(row + 0.5, color="grey", linewidth=0.6)


def _draw_memory(axes: Axes, picture: Picture, row: int, lane: MemoryLane, unit: int) -> None:
    """Draw what is taken of the memory of a GPU as bars from the bottom, with the jobs where their names fit."""
    for start, end, size, jobs in lane.use.steps:
        high = 0.8 * size / max(1, lane.use.bytes)
        # The axis points down.
        look: dict[str, Any] = {"facecolors": "lightgrey", "edgecolors": "white", "linewidth": 0.8}
        axes.broken_barh([(start / unit, (end - start) / unit)], (row + 0.4 - high, high), **look)
        _write(axes, picture, row, (start, end), ", ".join(jobs), unit)
    axes.axhline(row - 0.4, color="grey", linewidth=0.4, linestyle=":")


def _name_operations(axes: Axes, picture: Picture, row: int, lane: Lane, unit: int) -> None:
    """Write the names of operations of task graphs where they fit into their bars."""
    operations = picture.operations
    for interval in lane.intervals:
        if names := operations[interval.job]:
            _write(axes, picture, row, interval[:2], names[interval.number], unit)


def _write(axes: Axes, picture: Picture, row: int, span: tuple[int, int], name: str, unit: int) -> None:
    """Write a name into the middle of a bar where it fits."""
    start, end = span
    if name and _LETTERS * (end - start) >= len(name) * picture.end_us:
        axes.text((start + end) / 2 / unit, row, label(name), ha="center", va="center", fontsize=6, clip_on=True)


def _opacity(lane: Lane, level: int, depth: int) -> float:
    if lane.has_phases:
        return 1.0
    return 0.45 + 0.55 * level / depth if level else 0.8


def _label(axes: Axes, picture: Picture, unit: int, unit_name: str) -> None:
    """Label the picture: names at the left edge, the first one at the top, the axis, the title, and jobs if need be."""
    from matplotlib.patches import Patch

    plan, shown = picture.plan, [label(lane.name) for lane in picture.rows]
    axes.set_yticks(range(len(shown)), shown, fontsize=8)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, max(1, picture.end_us) / unit)
    axes.set_xlabel(unit_name)
    claimed = f"the plan file claims a bound of {plan.bound} ({plan.status})"
    title = f"{label(picture.instance.name)}: objective {plan.objective}; {claimed}"
    filled = picture.filled
    axes.set_title(title if filled is None else f"{title}, {100 * filled:.1f} % of holes filled", fontsize=10)
    if plan.is_phased:
        return
    names = [label(job.name) for job in plan.jobs[:_LEGEND_JOBS]]
    jobs = [Patch(color=colour) for colour in picture.colours[: len(names)]]
    # Labels on their own: a handle's label that begins with an underscore is taken for none.
    axes.legend(jobs, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)

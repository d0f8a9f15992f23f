"""A plan as text: one row for each GPU and link, for a terminal."""

from __future__ import annotations

import string

from jigsaw_opt.text import printable
from jigsaw_opt.views.lanes import Lane, Picture

__all__ = ["LETTERS", "timeline_text"]

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
"""What stands for a job in a row of text, by its number; from the 63rd on they come again."""
_HOLE = "·"


def timeline_text(picture: Picture, columns: int = 72) -> str:
    """Rows of `columns` cells; a cell names the job that has most of it, a dot is a hole.

    Jobs are lettered in the order of the instance; letters repeat after 62 jobs.
    """
    end = max(1, picture.end_us)
    shown = [printable(lane.name) for lane in picture.lanes]
    width = max(map(len, shown))
    rows = [
        f"{name:<{width}} |{''.join(_cells(lane, end, columns))}| {100 * lane.busy_us / end:3.0f} % busy"
        for name, lane in zip(shown, picture.lanes, strict=True)
    ]
    names = [f"{LETTERS[k % len(LETTERS)]} = {printable(job.name)}" for k, job in enumerate(picture.plan.jobs)]
    scale = f"{'':<{width}} 0{picture.end_us:>{columns}} us"
    return "\n".join([*rows, scale, "jobs: " + ", ".join(names)])


def _cells(lane: Lane, end: int, columns: int) -> list[str]:
    """The job with the largest share of each cell, unless a hole has more."""
    shares: list[dict[int, int]] = [{} for _ in range(columns)]
    for interval in lane.intervals:
        first = interval.start_us * columns // end
        last = min(columns - 1, max(first, (interval.end_us * columns - 1) // end))
        for cell in range(first, last + 1):
            low, high = max(interval.start_us * columns, cell * end), min(interval.end_us * columns, (cell + 1) * end)
            shares[cell][interval.job] = shares[cell].get(interval.job, 0) + max(0, high - low)
    return [_letter(share, end) for share in shares]


def _letter(share: dict[int, int], whole: int) -> str:
    if not share:
        return _HOLE
    job = max(share, key=lambda key: (share[key], -key))
    return LETTERS[job % len(LETTERS)] if 2 * sum(share.values()) >= whole else _HOLE

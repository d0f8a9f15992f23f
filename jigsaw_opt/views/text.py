"""A plan as text: one row for each GPU and link, for a terminal."""

from __future__ import annotations

import string

from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.text import counted, duration, printable
from jigsaw_opt.views.lanes import Lane, Picture

_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
"""What stands for a job in a row of text, by its number; from the 63rd on they come again."""
_HOLE = "·"


def timeline_text(picture: Picture, columns: int = 72) -> str:
    """Return rows of `columns` cells; a cell names the job that has most of it, a dot is a hole.

    Jobs are lettered in the order of the instance; letters repeat after 62 jobs. Rows of a phased plan are its jobs by
    group; a cell is lettered if the job is in a phase there, and below them all phases are told.
    """
    end = max(1, picture.end_us)
    shown = [printable(lane.name) for lane in picture.lanes]
    width = max(map(len, shown))
    lines, of_jobs = list[str](), picture.plan.is_phased
    for name, lane in zip(shown, picture.lanes, strict=True):
        heading = f"group {lane.group}"
        if of_jobs and heading not in lines:
            lines.append(heading)
        busy = "" if of_jobs else f" {100 * lane.busy_us / end:3.0f} % busy"
        lines.append(f"{name:<{width}} |{''.join(_cells(lane, end, columns))}|{busy}")
    lines.append(f"{'':<{width}} 0{picture.end_us:>{columns}} us")
    if of_jobs:
        return "\n".join([*lines, *map(phase_text, picture.plan.all_phases())])
    names = [f"{_LETTERS[k % len(_LETTERS)]} = {printable(job.name)}" for k, job in enumerate(picture.instance.jobs)]
    return "\n".join([*lines, "jobs: " + ", ".join(names)])


def phase_text(placed: tuple[int, int, Phase]) -> str:
    """Return a phase with its start and end, its period, its repetitions, and what each job does in one."""
    g, p, phase = placed
    done = ", ".join(f"{printable(job.name)} {len(job.iterations)}" for job in phase.jobs)
    times = f"{duration(phase.start_us)} to {duration(phase.end_us)}"
    periods = f"{counted(phase.count, 'period')} of {duration(phase.cycle_us)}"
    return f"group {g} phase {p}: {times}, {periods}, iterations in each: {done}"


def _cells(lane: Lane, end: int, columns: int) -> list[str]:
    """Return the job with the largest share of each cell, unless a hole has more."""
    shares: list[dict[int, int]] = [{} for _ in range(columns)]
    for interval in lane.intervals:
        first = interval.start_us * columns // end
        last = min(columns - 1, max(first, (interval.end_us * columns - 1) // end))
        for cell in range(first, last + 1):
            low, high = max(interval.start_us * columns, cell * end), min(interval.end_us * columns, (cell + 1) * end)
            shares[cell][interval.job] = shares[cell].get(interval.job, 0) + max(0, high - low)
    return [_letter(share, 0 if lane.has_phases else end) for share in shares]


def _letter(share: dict[int, int], whole: int) -> str:
    if not share:
        return _HOLE
    job = max(share, key=lambda key: (share[key], -key))
    return _LETTERS[job % len(_LETTERS)] if 2 * sum(share.values()) >= whole else _HOLE

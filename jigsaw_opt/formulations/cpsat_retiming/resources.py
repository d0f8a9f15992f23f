"""GPUs and links, each for one piece at a time (SPEC 4.4), on a line or on a circle of known length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_retiming.variables import Frame, TaskVariables

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_retiming.variables import Expression

__all__ = ["Busy", "add_disjoint"]

Busy = Mapping[int, Sequence[tuple[int, int]]]
"""Disjoint intervals by number of a GPU or link; on a circle within one period."""


def add_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskVariables], frame: Frame, busy_gpus: Busy, busy_links: Busy
) -> None:
    """SPEC 4.4: on a GPU blocks, on a link transfers do not overlap, neither each other nor what is fixed.

    Links with the same users and the same busy intervals share one constraint; a resource with one user and
    nothing fixed needs none, for the pieces of a job come one after the other.
    """
    users: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for j, it in enumerate(jobs):
        for slot, gpu in enumerate(it.task.gpus):
            users.setdefault(("gpu", gpu), []).append((j, slot))
        for link in it.task.channel.links:
            users.setdefault(("link", link), []).append((j, -1))
    stated = set()
    known: dict[tuple[int, int], list[cp_model.IntervalVar]] = {}
    for (kind, number), there in users.items():
        fixed = tuple((busy_gpus if kind == "gpu" else busy_links).get(number, ()))
        if (len(there) == 1 and not fixed) or (tuple(there), fixed) in stated:
            continue
        stated.add((tuple(there), fixed))
        intervals = [interval for user in there for interval in _intervals(model, jobs, frame, known, user)]
        model.add_no_overlap([*intervals, *_fixed(model, frame, fixed)])


def _intervals(
    model: cp_model.CpModel,
    jobs: Sequence[TaskVariables],
    frame: Frame,
    known: dict[tuple[int, int], list[cp_model.IntervalVar]],
    user: tuple[int, int],
) -> list[cp_model.IntervalVar]:
    """Intervals of a job's slot, or of its transfers (slot -1)."""
    if user not in known:
        it, slot = jobs[user[0]], user[1]
        if slot < 0:
            pieces = [pair for row, sizes in zip(it.moves, it.durations, strict=True) for pair in zip(row, sizes)]
        else:
            pieces = [(row[slot], sizes[slot]) for row, sizes in zip(it.starts, it.sizes, strict=True)]
        known[user] = [
            interval
            for start, size in pieces
            if not (isinstance(size, int) and size == 0)
            for interval in _laid(model, frame, start, size)
        ]
    return known[user]


def _laid(
    model: cp_model.CpModel, frame: Frame, start: cp_model.IntVar, size: Expression
) -> list[cp_model.IntervalVar]:
    """Interval of a piece; on a circle those from its residue and from a period later."""
    if frame.period is None:
        return [_interval(model, start, size)]
    first = model.new_int_var(0, frame.period - 1, "")
    turns = model.new_int_var(0, 2, "")
    model.add(first == start - frame.period * turns)
    return [_interval(model, first, size), _interval(model, first + frame.period, size)]


def _interval(model: cp_model.CpModel, start: Expression, size: Expression) -> cp_model.IntervalVar:
    if isinstance(size, int):
        return model.new_fixed_size_interval_var(start, size, "")
    # The end is a variable of its own, for the engine wants affine ends.
    end = model.new_int_var(0, 2**50, "")
    model.add(end == start + size)
    return model.new_interval_var(start, size, end, "")


def _fixed(model: cp_model.CpModel, frame: Frame, intervals: Sequence[tuple[int, int]]) -> list[cp_model.IntervalVar]:
    turns = (0,) if frame.period is None else (0, frame.period)
    return [
        model.new_fixed_size_interval_var(start + turn, end - start, "") for turn in turns for start, end in intervals
    ]

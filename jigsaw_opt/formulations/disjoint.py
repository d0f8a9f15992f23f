"""Resources for one operation at a time, on either horizon of known length, for CP-SAT (specification: exclusive)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Expression = cp_model.LinearExpr | int

Busy = Mapping[int, Sequence[tuple[int, int]]]
"""Disjoint intervals by number of a resource; on the cyclic horizon within one period."""
User = tuple[int, int]
"""Number of a job, and the number of one of its slots or machines, or `LINKS`."""
LINKS = -1
"""Stands for all transfers of a job."""


def add_no_overlaps(
    model: cp_model.CpModel,
    users: Mapping[tuple[str, int], Sequence[User]],
    busy: Mapping[str, Busy],
    intervals: Callable[[User], list[cp_model.IntervalVar]],
    period: int | None,
) -> None:
    """Require that on no resource operations overlap, neither each other nor what is fixed.

    Resources with the same users and the same busy intervals share one constraint; one with one user and nothing
    fixed needs none, for the operations of a job come one after the other.

    `period`: length of the period, or None on the finite horizon.
    """
    stated = set()
    known: dict[User, list[cp_model.IntervalVar]] = {}
    for (kind, number), there in users.items():
        fixed = tuple(busy[kind].get(number, ()))
        # The operations of one user follow one another already, and resources with the same users and the same fixed
        # intervals need one constraint.
        if (len(there) == 1 and not fixed) or (tuple(there), fixed) in stated:
            continue
        stated.add((tuple(there), fixed))
        for user in there:
            if user not in known:
                known[user] = intervals(user)
        model.add_no_overlap([*(one for user in there for one in known[user]), *_fixed(model, fixed, period)])


def operation_intervals(
    model: cp_model.CpModel, start: cp_model.IntVar, size: Expression, period: int | None, turns: int
) -> list[cp_model.IntervalVar]:
    """Return the interval of an operation; on the cyclic horizon those from its residue and from a period later.

    `period`: the period, in microseconds; None on the finite horizon. `turns`: largest number of whole periods from 0
    to its start.
    """
    if period is None:
        return [_interval(model, start, size)]
    first = model.new_int_var(0, period - 1, "")
    turn = model.new_int_var(0, turns, "")
    model.add(first == start - period * turn)
    return [_interval(model, first, size), _interval(model, first + period, size)]


def _interval(model: cp_model.CpModel, start: Expression, size: Expression) -> cp_model.IntervalVar:
    if isinstance(size, int):
        return model.new_fixed_size_interval_var(start, size, "")
    # The end is a variable of its own, for the engine wants affine ends.
    end = model.new_int_var(0, 2**50, "")
    model.add(end == start + size)
    return model.new_interval_var(start, size, end, "")


def _fixed(
    model: cp_model.CpModel, intervals: Sequence[tuple[int, int]], period: int | None
) -> list[cp_model.IntervalVar]:
    turns = (0,) if period is None else (0, period)
    return [
        model.new_fixed_size_interval_var(start + turn, end - start, "") for turn in turns for start, end in intervals
    ]

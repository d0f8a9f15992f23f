"""The least period at which a finite schedule repeats, with its orders on GPUs and links kept.

On each GPU and link, activities of a period come in the order of the schedule, and the first of the next period behind
the last one. What is held is then the same as in the schedule. The period is the largest ratio of length to periods
over all circuits of what waits for one another (Baccelli, Cohen, Olsder and Quadrat, *Synchronization and linearity*,
1992, section 3.2). It is raised from one circuit that is too long to the next until none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import maxsize

from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.activities.flat import FlatActivities

Waits = Sequence[Sequence[tuple[int, int, int]]]
"""By activity, what it waits for: the other one, how long from its start, and how many periods before."""


def repeated(flat: FlatActivities, order: Sequence[int], limit: int) -> tuple[int, list[int]] | None:
    """Return the least period of an order, and starts that keep it; None where it is above a limit.

    `limit`: the largest period of interest, in microseconds.
    """
    return least_period(waits_in_order(flat, order), order, max(1, *flat.duration_us), limit)


def least_period(waits: Waits, order: Sequence[int], least: int, limit: int) -> tuple[int, list[int]] | None:
    """Return the least period, of at least `least`, that waits leave, and starts that keep it; None above a limit.

    `order`: all activities; the nearer to the order of their starts, the sooner it is found.
    """
    period = least
    while period <= limit:
        found = _starts(waits, order, period)
        if isinstance(found, list):
            return period, found
        # Each circuit is a bound of its own: no smaller period keeps this order.
        period = max(period + 1, found)
    return None


def waits_in_order(
    flat: FlatActivities, order: Sequence[int], repeats: bool = True
) -> list[list[tuple[int, int, int]]]:
    """Return, by activity, its waits as (before, length, periods): its own, and for the one before it on each resource.

    `repeats`: whether the first one on each GPU and link waits for the last of the period before, too.
    """
    waits: list[list[tuple[int, int, int]]] = [[] for _ in order]
    for before, after, length, periods in flat.arcs:
        waits[after].append((before, length, periods))
    first, last = dict[int, int](), dict[int, int]()
    for activity in order:
        for resource in flat.resources[activity]:
            if resource in last:
                waits[activity].append((last[resource], flat.duration_us[last[resource]], 0))
            first.setdefault(resource, activity)
            last[resource] = activity
    for resource, activity in last.items() if repeats else ():
        waits[first[resource]].append((activity, flat.duration_us[activity], 1))
    return waits


def earliest(flat: FlatActivities, order: Sequence[int]) -> list[int]:
    """Return the earliest starts on the finite horizon where GPUs and links take activities in an order."""
    start, waits = list(flat.release_us), waits_in_order(flat, order, repeats=False)
    for number in order:
        start[number] = max([start[number], *(start[before] + length for before, length, _ in waits[number])])
    return start


def _starts(arcs: Waits, order: Sequence[int], period: int) -> list[int] | int:
    """Return the earliest starts at a period; or, if it is too short, a period that no plan of this order is below."""
    start, cause = [0] * len(order), [-1] * len(order)
    while True:
        check_deadline()
        # Bellman and Ford's algorithm for longest ways, in the order in which most waits point forward: mostly two
        # rounds suffice.
        changed = False
        for activity in order:
            moment = start[activity]
            for before, length, periods in arcs[activity]:
                earliest = start[before] + length - periods * period
                if earliest > moment:
                    moment, cause[activity] = earliest, before
            if moment > start[activity]:
                start[activity], changed = moment, True
        if not changed:
            return start
        least = _circuit(arcs, cause, period)
        if least is not None:
            return least


def _circuit(arcs: Waits, cause: Sequence[int], period: int) -> int | None:
    """Return the ratio of a circuit of causes, rounded up; None if there is no circuit yet."""
    seen = [-1] * len(cause)
    for begin in range(len(cause)):
        at = begin
        while at != -1 and seen[at] == -1:
            seen[at] = begin
            at = cause[at]
        # Causes lead back to where this walk has been, so they form a circuit, and its length exceeds its periods.
        if at != -1 and seen[at] == begin:
            return _ratio(arcs, cause, at, period)
    return None


def _ratio(arcs: Waits, cause: Sequence[int], begin: int, period: int) -> int:
    """Return length over periods of a circuit, rounded up; more than any limit where no period is long enough."""
    total = turns = 0
    at = begin
    while True:
        # Several waits may join the same two activities. The one that was the cause is the one that asks for most at
        # this period.
        used = [(length, periods) for before, length, periods in arcs[at] if before == cause[at]]
        length, periods = max(used, key=lambda entry: entry[0] - entry[1] * period)
        total, turns = total + length, turns + periods
        at = cause[at]
        if at == begin:
            return ceil_div(total, turns) if turns > 0 else maxsize

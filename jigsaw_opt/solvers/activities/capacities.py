"""Cumulative capacities as waits: in any schedule that keeps these, no more is taken of a capacity than there is.

Units of a capacity go from activities that end to activities that start, as a resource flow (Artigues and Roubellat,
*A polynomial activity insertion algorithm*, EJOR 127, 2000). Whoever takes units waits for those who had them before:
each unit is then with one activity at a time. On a circle, units that one period leaves go to the next, so that the
flow repeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities

_LAPS = 3
"""Periods after which the flow repeats: a unit that was free from the outset is taken within one."""


def keeping_capacities(flat: FlatActivities, starts: Sequence[int], period: int | None = None) -> FlatActivities:
    """Return activities with waits that keep cumulative capacities at any starts, in the order of given ones.

    `flat`: activities each of which keeps the capacities alone. `starts`: by activity, in microseconds; a schedule with
    these starts that keeps the capacities keeps the waits. `period`: in microseconds; None on the finite horizon.
    """
    if not flat.limits:
        return flat
    return flat._replace(arcs=[*flat.arcs, *capacity_arcs(flat, starts, period)], uses=(), limits=())


def capacity_arcs(flat: FlatActivities, starts: Sequence[int], period: int | None = None) -> list[Arc]:
    """Return the waits of `keeping_capacities`."""
    amounts: list[dict[int, int]] = [{} for _ in flat.limits]
    for activity, own in enumerate(flat.uses):
        for capacity, amount in own if flat.duration_us[activity] else ():
            amounts[capacity][activity] = amount
    found = dict[Arc, None]()
    for limit, own_amounts in zip(flat.limits, amounts, strict=True):
        # What suffices for all users at once makes none of them wait.
        if limit < sum(own_amounts.values()):
            arcs = _flow(flat.duration_us, starts, period, limit, own_amounts, period)
            if arcs is None and period is not None:
                # Starts that exceed the capacity only say an order; each repetition is then behind the one before.
                apart = period + max(flat.duration_us)
                arcs = _flow(flat.duration_us, starts, period, limit, own_amounts, apart)
            found.update(dict.fromkeys(arcs or ()))
    return list(found)


def _flow(
    durations: Sequence[int],
    starts: Sequence[int],
    period: int | None,
    limit: int,
    amounts: Mapping[int, int],
    lap_us: int | None,
) -> list[Arc] | None:
    """Return which activity takes units of which other one; units that are free for longest are taken first.

    `lap_us`: time from one repetition to the next, in microseconds. None where units run out, and it is the period.
    """
    laps = 1 if period is None else _LAPS
    turn = [0 if period is None else start // period for start in starts]
    occurrences = sorted(
        (starts[activity] - turn[activity] * (period or 0) + lap * (lap_us or 0), activity, lap)
        for lap in range(laps)
        for activity in amounts
    )
    free: deque[tuple[int, int, int]] = deque([(limit, -1, 0)])  # units, who had them, and in which lap
    left, running, arcs = limit, list[tuple[int, int, int]](), list[Arc]()
    for start, activity, lap in checking_deadline(occurrences):
        missing = amounts[activity]
        while running and (running[0][0] <= start or left < missing):
            end, before, in_lap = heappop(running)
            if end > start and period is not None and lap_us == period:
                return None
            free.append((amounts[before], before, in_lap))
            left += amounts[before]
        left -= missing
        while missing:
            units, before, in_lap = free.popleft()
            if units > missing:
                free.appendleft((units - missing, before, in_lap))
            missing -= min(units, missing)
            if before >= 0 and lap == laps - 1:
                periods = lap - in_lap + turn[before] - turn[activity]
                arcs.append(Arc(before, activity, durations[before], periods))
        heappush(running, (start + durations[activity], activity, lap))
    return arcs

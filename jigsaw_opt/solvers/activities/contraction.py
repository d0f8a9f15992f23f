"""Activities that use no GPU or link, such as transfers within a server, as mere delays between the others."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities

__all__ = ["contracted", "in_order", "with_delays"]


def contracted(flat: FlatActivities) -> tuple[FlatActivities, list[int]]:
    """Return the activities without those that only delay others, and which ones are left.

    Left out is what uses nothing, holds nothing, and waits for one activity or has one that waits for it: what waits
    for it then waits for what it waited for, as much longer as it takes.
    """
    before: list[dict[int, int]] = [{} for _ in flat.duration_us]
    after: list[dict[int, int]] = [{} for _ in flat.duration_us]
    fixed = [bool(a or b or c) for a, b, c in zip(flat.resources, flat.opens, flat.closes, strict=True)]
    for one, other, length, periods in flat.arcs:
        # A wait over periods remains an arc, so both of its ends are kept.
        if periods:
            fixed[one] = fixed[other] = True
        else:
            before[other][one] = after[one][other] = max(length, before[other].get(one, 0))
    release, kept = list(flat.release_us), []
    # An activity with one wait on either side is replaced by no more arcs than it had. With several on both sides there
    # would be their product.
    for number, lasts in enumerate(flat.duration_us):
        own, later = before[number], after[number]
        # What ends last of all is no mere delay.
        if fixed[number] or min(len(own), len(later)) != 1 or min(later.values()) < lasts:
            kept.append(number)
            continue
        for other, length in later.items():
            del before[other][number]
            release[other] = max(release[other], release[number] + length)
            for one, lag in own.items():
                before[other][one] = after[one][other] = max(lag + length, before[other].get(one, 0))
        for one in own:
            del after[one][number]
    return _renumbered(flat._replace(release_us=release), kept, after), kept


def _renumbered(flat: FlatActivities, kept: Sequence[int], after: Sequence[dict[int, int]]) -> FlatActivities:
    """Return the activities that are kept, in their order, with other waits within a period."""
    number = {activity: place for place, activity in enumerate(kept)}
    arcs = [Arc(number[a], number[b], length, 0) for a in kept for b, length in after[a].items()]
    arcs += [arc._replace(before=number[arc.before], after=number[arc.after]) for arc in flat.arcs if arc.periods]
    return FlatActivities(
        [flat.duration_us[a] for a in kept],
        [flat.release_us[a] for a in kept],
        [flat.resources[a] for a in kept],
        arcs,
        [[(gpu, amount, number[end]) for gpu, amount, end in flat.opens[a]] for a in kept],
        [[(gpu, amount, number[start]) for gpu, amount, start in flat.closes[a]] for a in kept],
        flat.room,
        [flat.job[a] for a in kept],
        [flat.iteration[a] for a in kept],
    )


def with_delays(flat: FlatActivities, kept: Sequence[int], starts: Sequence[int]) -> list[int]:
    """Return starts of all activities, given those of what `contracted` keeps.

    By activity, in microseconds; the others start as early as they can.
    """
    found, known = list(flat.release_us), [False] * len(flat.duration_us)
    for activity, start in zip(kept, starts, strict=True):
        found[activity], known[activity] = start, True
    waits: list[list[tuple[int, int]]] = [[] for _ in found]
    for before, after, length, periods in flat.arcs:
        if periods == 0 and not known[after]:
            waits[after].append((before, length))
    pending = [activity for activity, done in enumerate(known) if not done]
    # A stack takes the place of recursion, as chains of delays may be longer than Python's own stack.
    while pending:
        activity = pending[-1]
        unknown = [before for before, _ in waits[activity] if not known[before]]
        if unknown:
            pending += unknown
            continue
        pending.pop()
        moments = [found[before] + length for before, length in waits[activity]]
        found[activity], known[activity] = max(flat.release_us[activity], *moments), True
    return found


def in_order(flat: FlatActivities, starts: Sequence[int], jobs: Sequence[int] | None = None) -> list[int]:
    """Return all activities in the order of their starts, each behind those that it waits for in its period.

    `jobs`: by job, a number: of activities that start at once, those of jobs with lower ones come first. None where the
    number of an activity decides.
    """
    place = [0] * len(starts) if jobs is None else [jobs[job] for job in flat.job]
    successors = flat.successors()
    missing = [0] * len(starts)
    for later in successors:
        for after, _ in later:
            missing[after] += 1
    ready = sorted((starts[a], place[a], a) for a, count in enumerate(missing) if count == 0)
    order = []
    while ready:
        _, _, activity = heappop(ready)
        order.append(activity)
        for after, _ in successors[activity]:
            missing[after] -= 1
            if missing[after] == 0:
                heappush(ready, (starts[after], place[after], after))
    return order

"""Ranks of activities for list schedules, and activities without GPU or link as delays between the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import product
from math import inf
from random import Random
from typing import NamedTuple

from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities
from jigsaw_opt.solvers.activities.held_memory import longest_tails

_ORDERS = ("release", "leaves_last", "critical", "in_order", "by_job")
"""Orders that are tried, those that make good schedules of pipelines first, for there may be time for a few only."""
_PATIENCES, _AHEAD = (0, 2, 4), (1.0, 2.0, 1.5, 1.25, 1.75, 2.5)
"""Values of `patience` and `ahead` that each order is tried with, those that make ZB-H1 and ZB-H2 of a pipeline
first: there may be time for a few only."""
_LEAST_AHEAD, _MOST_AHEAD = 0.9, 3.0
"""Range that `ahead` is drawn from, a little wider than the values above."""


class Rule(NamedTuple):
    """Rule by which a list schedule is made.

    `order`: ``critical``: longest way to the end first. ``release``: so, but first what frees memory; of a pipeline
    this makes 1F1B. ``leaves_last``: so, but last what nothing waits for, which fills gaps. ``in_order``: as in the
    reserve. ``by_job``: job by job, the earliest deadline first, then most weight for its work. ``ahead``: first what
    takes memory, last what nothing waits for; of a pipeline this makes the zero-bubble schedules.
    """

    order: str
    patience: int
    ahead: float | None = None


class Ranks:
    """Ranks of the same placed activities.

    `reserve`: an order of all of them, each behind those that it waits for. `deadlines`: by job, what it must end by,
    or None; empty where no job does.
    """

    def __init__(
        self, flat: FlatActivities, weights: Sequence[int], reserve: Sequence[int], deadlines: Sequence[int | None] = ()
    ) -> None:
        self._flat, self._tail, self._leaf = flat, longest_tails(flat.successors()), _leaves(flat)
        self._place = {activity: place for place, activity in enumerate(reserve)}
        self._grows = [
            sum(interval[1] for interval in opens) > sum(interval[1] for interval in closes)
            for opens, closes in zip(flat.opens, flat.closes, strict=True)
        ]
        self._job_rank = _jobs_by_ratio(flat, weights, deadlines or [None] * len(weights))
        self.rules = [Rule(*parts) for parts in product(_ORDERS, _PATIENCES)]
        if any(self._grows):
            # First, for there may be time for a few only.
            self.rules[:0] = [Rule("ahead", patience, ahead) for ahead, patience in product(_AHEAD, _PATIENCES)]

    def draw(self, random: Random) -> Rule:
        """Return a random rule."""
        patience = random.choice(_PATIENCES)
        if any(self._grows) and random.random() < 0.7:
            return Rule("ahead", patience, random.uniform(_LEAST_AHEAD, _MOST_AHEAD))
        return Rule(random.choice(_ORDERS), patience)

    def rank(self, order: str, random: Random | None = None) -> list[int]:
        """Return, by activity, its place among all of them by the order of a rule; blurred where there is chance."""
        blur = random.choice((0.05, 0.2, 0.5)) if random else 0.0

        def key(activity: int) -> tuple[float, ...]:
            tail: float = -self._tail[activity] - self._flat.duration_us[activity]
            if random is not None:
                tail *= 1 + blur * (random.random() - 0.5)
            grows, leaf = self._grows[activity], self._leaf[activity]
            if order == "in_order":
                return self._place[activity] * (1 + blur * random.random() if random else 1.0), activity
            if order == "by_job":
                return self._job_rank[self._flat.job[activity]], grows, tail, activity
            if order == "critical":
                return tail, activity
            if order == "ahead":
                return not grows, leaf, tail, activity
            # False sorts before True: what frees memory comes before what takes it. The number of the activity breaks
            # ties, so that the rank is always the same.
            return order == "leaves_last" and leaf, grows, tail, activity

        return self._ranked(key)

    def _ranked(self, key: Callable[[int], tuple[float, ...]]) -> list[int]:
        found = [0] * len(self._tail)
        for place, activity in enumerate(sorted(range(len(found)), key=key)):
            found[activity] = place
        return found


def _leaves(flat: FlatActivities) -> list[bool]:
    """Return, by activity, whether nothing of its iteration waits for it."""
    leaf = [True] * len(flat.duration_us)
    for before, after, _, periods in flat.arcs:
        if periods == 0 and flat.iteration[before] == flat.iteration[after]:
            leaf[before] = False
    return leaf


def _jobs_by_ratio(flat: FlatActivities, weights: Sequence[int], deadlines: Sequence[int | None]) -> list[int]:
    """Return the place of each job: the earliest deadline first, then those without, by work per unit of weight."""
    work = [0] * len(weights)
    for activity, length in enumerate(flat.duration_us):
        work[flat.job[activity]] += length
    ratio = [amount / weight for amount, weight in zip(work, weights, strict=True)]
    by_ratio = sorted(range(len(ratio)), key=lambda job: (deadlines[job] or inf, ratio[job]))
    return [by_ratio.index(job) for job in range(len(ratio))]


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
    successors, missing = flat.successors(), flat.wait_counts()
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

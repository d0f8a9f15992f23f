"""Modulo scheduling of placed activities with ejection: schedules of a given period whose repetitions overlap.

After Rau, *Iterative modulo scheduling* (MICRO-27, 1994), and Huff, *Lifetime-sensitive modulo scheduling* (PLDI 1993).
Activities are placed one by one, least slack first, at a time that their GPUs and links have free modulo the period. An
activity that finds none takes a time by force, and what stands against it there is ejected and placed anew. The longest
ways between all pairs, waits of the period before included, say how early and how late an activity may start beside
those that are placed. What only begins holds is placed late, so that they are short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities

if TYPE_CHECKING:
    import numpy as np

_NONE = -(2**60)
"""Length of a way that there is not; sums of two are still integers of 64 bits."""
_TIGHT = 0.4
"""Share of runs that place all activities as near to the others as they can."""
_EJECTIONS = 4
"""Largest number of placements that are tried for a period, as a multiple of the number of activities."""


class _Held(NamedTuple):
    """A hold by its activities; `least_us` is the least time from the one's start to the other's end."""

    start: int
    end: int
    amount: int
    least_us: int


class ModuloScheduler:
    """Schedules the same placed activities for one period after another.

    `arcs`: all that they wait for on the cyclic horizon, also on the same GPU or link.
    """

    def __init__(self, flat: FlatActivities, arcs: Sequence[Arc]) -> None:
        self.flat, self.arcs = flat, tuple(arcs)
        self._period = 0
        self._ways: np.ndarray | None = None

    @property
    def least(self) -> int:
        """Return a lower bound on the period: the longest activity, and the work of each GPU, link and capacity."""
        work, taken = Counter[int](), Counter[int]()
        for length, own in zip(self.flat.duration_us, self.flat.resources, strict=True):
            work.update(dict.fromkeys(own, length))
        for length, uses in zip(self.flat.duration_us, self.flat.uses, strict=False):
            taken.update({capacity: amount * length for capacity, amount in uses})
        full = (ceil_div(taken[capacity], limit) for capacity, limit in enumerate(self.flat.limits) if taken[capacity])
        return max(1, *self.flat.duration_us, *work.values(), *full)

    def schedule(self, period: int, random: Random) -> list[int] | None:
        """Return the starts of a schedule of a period, in microseconds; None where none was found."""
        if period != self._period:
            self._period, self._ways = period, _longest_ways(len(self.flat.duration_us), self.arcs, period)
        return None if self._ways is None else _ModuloRun(self.flat, self._ways, period, random).run()


def _longest_ways(size: int, arcs: Sequence[Arc], period: int) -> np.ndarray | None:
    """Return, by pair, the least time from start to start.

    The result is None where the period is too short for a circuit of waits.
    """
    import numpy as np

    ways = np.full((size, size), _NONE, dtype=np.int64)
    # Floyd and Warshall's algorithm for longest ways. A circuit that is too long shows as a positive entry on the
    # diagonal. Entries behind it may overflow, but they never decrease, so it stays positive.
    np.fill_diagonal(ways, 0)
    for before, after, length, periods in arcs:
        ways[before, after] = max(ways[before, after], length - periods * period)
    for middle in range(size):
        check_deadline()
        np.maximum(ways, ways[:, middle, None] + ways[None, middle, :], out=ways)
    np.maximum(ways, _NONE, out=ways)
    return None if ways.diagonal().max() > 0 else ways


class _ModuloRun:
    """One schedule in the making."""

    def __init__(self, flat: FlatActivities, ways: np.ndarray, period: int, random: Random) -> None:
        self.flat, self.ways, self.period, self.random = flat, ways, period, random
        # Either activities go as near to what is placed as they can, or those that begin holds late, and others early.
        self.tight = random.random() < _TIGHT
        self.start: dict[int, int] = {}
        self.on: list[set[int]] = [set() for _ in range(1 + max((r for own in flat.resources for r in own), default=0))]
        self.uses = flat.uses or [()] * len(flat.duration_us)
        self.under: list[dict[int, int]] = [{} for _ in flat.limits]
        self.held: list[list[_Held]] = [[] for _ in flat.room]
        for begin, opens in enumerate(flat.opens):
            for gpu, amount, end in opens:
                least = max(0, int(ways[begin, end]) + flat.duration_us[end])
                self.held[gpu].append(_Held(begin, end, amount, least))
        pairs = zip(flat.opens, flat.closes, strict=True)
        self.gpus = [sorted({event[0] for event in (*opens, *closes)}) for opens, closes in pairs]
        self.late = [bool(opens) and not closes for opens, closes in zip(flat.opens, flat.closes, strict=True)]

    def run(self) -> list[int] | None:
        size = len(self.flat.duration_us)
        for _ in range(_EJECTIONS * size):
            check_deadline()
            if len(self.start) == size:
                # Whole periods later all of it is the same, and no start is negative.
                earlier = -min(self.start.values()) // self.period + 1
                return [self.start[activity] + earlier * self.period for activity in range(size)]
            activity, first, last, late = self._next()
            if not self._place(activity, first, last, late) and not self._force(activity, first, last):
                return None
        return None

    def _next(self) -> tuple[int, int, int, bool]:
        """Return the unplaced activity with least slack, its earliest start, its latest, and whether late is better."""
        import numpy as np

        if not self.start:
            return self.random.randrange(len(self.flat.duration_us)), 0, self.period - 1, False
        placed = np.fromiter(self.start, dtype=np.int64)
        moments = np.fromiter(self.start.values(), dtype=np.int64)
        early = (moments[:, None] + self.ways[placed, :]).max(axis=0)
        late = (moments[None, :] - self.ways[:, placed]).min(axis=1)
        slack = late - early
        # No activity that is placed has least slack.
        slack[placed] = 2**62
        activity = int(slack.argmin())
        return activity, *self._window(activity, int(early[activity]), int(late[activity]))

    def _window(self, activity: int, early: int, late: int) -> tuple[int, int, bool]:
        """Return a window of at most one period: behind the earliest start, before the latest, or anywhere."""
        whole, behind, before = self.period - 1, early > _NONE // 2, late < -_NONE // 2
        opens = self.late[activity]
        if not before:
            return (early, early + whole, opens and not self.tight) if behind else (0, whole, False)
        if not behind:
            return late - whole, late, self.tight or opens
        if opens:
            return max(early, late - whole), late, True
        return early, min(late, early + whole), False

    def _place(self, activity: int, first: int, last: int, late: bool) -> bool:
        """Place an activity at the first time, or the last, that is free and leaves enough memory."""
        moments = sorted(set(self._moments(activity, first, last)), reverse=late)
        for moment in moments:
            if next(self._conflicts(activity, moment), None) is None:
                self._put(activity, moment)
                if all(self._overfull(gpu) is None for gpu in self.gpus[activity]):
                    return True
                self._eject(activity)
        return False

    def _moments(self, activity: int, first: int, last: int) -> Iterator[int]:
        """Yield times worth a try: both ends, and those next to what is placed."""
        yield first
        yield last
        own = self.flat.duration_us[activity]
        capacities = (self.under[capacity] for capacity, _ in self.uses[activity])
        for others in (*(self.on[resource] for resource in self.flat.resources[activity]), *capacities):
            for other in others:
                behind = self.start[other] + self.flat.duration_us[other]
                for moment in (behind, self.start[other] - own):
                    # The same moment modulo the period, not before the window.
                    at = first + (moment - first) % self.period
                    if at <= last:
                        yield at

    def _conflicts(self, activity: int, moment: int) -> Iterator[int]:
        """Yield what overlaps an activity at a time, on its GPUs and links, or where a capacity is exceeded."""
        own = self.flat.duration_us[activity]
        for resource in self.flat.resources[activity]:
            for other in self.on[resource]:
                # On the circle of the period, `after` is the way from the other's start to this one, and the rest of
                # the circle is the way back.
                after = (moment - self.start[other]) % self.period
                if after < self.flat.duration_us[other] or self.period - after < own:
                    yield other
        for capacity, amount in self.uses[activity] if own else ():
            others = self.under[capacity]
            # The level rises only where something starts.
            starts = (self.start[other] for other in others if (self.start[other] - moment) % self.period < own)
            for at in (moment, *starts):
                running = [o for o in others if (at - self.start[o]) % self.period < self.flat.duration_us[o]]
                if amount + sum(others[other] for other in running) > self.flat.limits[capacity]:
                    yield from running

    def _put(self, activity: int, moment: int) -> None:
        self.start[activity] = moment
        for resource in self.flat.resources[activity]:
            self.on[resource].add(activity)
        for capacity, amount in self.uses[activity]:
            self.under[capacity][activity] = amount

    def _eject(self, activity: int) -> None:
        del self.start[activity]
        for resource in self.flat.resources[activity]:
            self.on[resource].discard(activity)
        for capacity, _ in self.uses[activity]:
            del self.under[capacity][activity]

    def _force(self, activity: int, first: int, last: int) -> bool:
        """Place an activity and eject what conflicts with it; return False where memory never suffices for it."""
        # A fixed choice could let two activities eject each other for ever.
        moment = self.random.choice(sorted(set(self._moments(activity, first, max(first, last)))))
        for other in set(self._conflicts(activity, moment)):
            self._eject(other)
        for other, start in list(self.start.items()):
            tight = start + self.ways[other, activity] > moment or moment + self.ways[activity, other] > start
            if tight:
                self._eject(other)
        self._put(activity, moment)
        return all(self._make_room(activity, gpu) for gpu in self.gpus[activity])

    def _make_room(self, activity: int, gpu: int) -> bool:
        """Eject ends of memory intervals until memory suffices on a GPU."""
        while (holding := self._overfull(gpu)) is not None:
            others = [
                operation
                for held in holding
                for operation in held[:2]
                if operation in self.start and operation != activity
            ]
            if not others:
                return False
            self._eject(self.random.choice(others))
        return True

    def _overfull(self, gpu: int) -> list[_Held] | None:
        """Return the memory intervals of a moment at which a GPU has too little memory for them, or None."""
        spans = [
            (held, *self._span(held)) for held in self.held[gpu] if held.start in self.start or held.end in self.start
        ]
        # The level rises only where an interval begins, so that the most is held at one of these moments.
        for _, moment, _ in spans:
            level, holding = 0, []
            for held, begin, length in spans:
                beyond = length - (moment - begin) % self.period
                if beyond > 0:
                    # An interval longer than the period overlaps its own repetitions, and each of them holds its bytes.
                    level += held.amount * ((beyond - 1) // self.period + 1)
                    holding.append(held)
            if level > self.flat.room[gpu]:
                return holding
        return None

    def _span(self, held: _Held) -> tuple[int, int]:
        """Return start and length of a memory interval; the least length where one end is not placed."""
        if held.start not in self.start:
            return self.start[held.end] + self.flat.duration_us[held.end] - held.least_us, held.least_us
        begin = self.start[held.start]
        if held.end not in self.start:
            return begin, held.least_us
        return begin, self.start[held.end] + self.flat.duration_us[held.end] - begin

"""What is held on GPUs while activities are done one by one, and orders in which memory suffices.

A hold reaches from one block of a slot to another, and blocks of a GPU do not overlap. So what a GPU holds while one of
its blocks runs depends on the order of its blocks alone, not on their times: memory is a property of orders.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.solvers.activities.flat import FlatActivities

_MOST_CHOICES = 20_000
"""Largest number of choices that the search for an order takes back before it gives up: it is exponential."""
_NOTHING_TRIED = (-1, -1)
"""What is less than any choice: all of those at this place are still to be tried."""


class HeldMemory:
    """Bytes that activities done so far have left on the GPUs.

    `held, room`: by GPU, bytes that memory intervals take, and that they may take.
    """

    def __init__(self, flat: FlatActivities) -> None:
        self._opens, self._closes, self.room = flat.opens, flat.closes, flat.room
        self.done = bytearray(len(flat.opens))
        self.held = [0] * len(flat.room)

    def fits(self, activity: int) -> bool:
        """Return whether memory suffices for an activity now."""
        done, held, room = self.done, self.held, self.room
        opens = self._opens[activity]
        # Nearly every activity begins one memory interval, and this is called most of all.
        if len(opens) == 1:
            gpu, amount, end = opens[0]
            return done[end] == 1 or held[gpu] + amount <= room[gpu]
        more: dict[int, int] = {}
        for gpu, amount, end in opens:
            if not done[end]:
                more[gpu] = more.get(gpu, 0) + amount
        return all(held[gpu] + amount <= room[gpu] for gpu, amount in more.items())

    def grows(self, activity: int) -> bool:
        """Return whether an activity done now may leave some GPU with more bytes held than before."""
        more: dict[int, int] = {}
        for gpu, amount, end in self._opens[activity]:
            if not self.done[end] and end != activity:
                more[gpu] = more.get(gpu, 0) + amount
        for gpu, amount, start in self._closes[activity]:
            if self.done[start]:
                more[gpu] = more.get(gpu, 0) - amount
        return any(amount > 0 for amount in more.values())

    def do(self, activity: int) -> None:
        """Do an activity."""
        done, held = self.done, self.held
        for gpu, amount, end in self._opens[activity]:
            if not done[end]:
                held[gpu] += amount
        done[activity] = 1
        for gpu, amount, start in self._closes[activity]:
            if done[start]:
                held[gpu] -= amount

    def undo(self, activity: int) -> None:
        """Undo the activity that was done last."""
        done, held = self.done, self.held
        for gpu, amount, start in self._closes[activity]:
            if done[start]:
                held[gpu] += amount
        done[activity] = 0
        for gpu, amount, end in self._opens[activity]:
            if not done[end]:
                held[gpu] -= amount


def serial_order(flat: FlatActivities) -> list[int] | None:
    """Return a serial order of all activities in which memory suffices; None where none was found.

    What fits and leaves no GPU with more than before is done at once: in any order of the rest, nothing needs more for
    it. Only among the others is there a choice, which is taken back where it leads nowhere. What has least left behind
    it goes first, so that what was begun is brought to its end.
    """
    return _SerialSearch(flat).run()


class _SerialSearch:
    """Depth-first search for an order; sets of activities that nothing follows are remembered.

    What is ready is `light` where it leaves no GPU with more than before, and else among `heavy`, least tail first.
    """

    def __init__(self, flat: FlatActivities) -> None:
        self.flat, self.memory, self.successors = flat, HeldMemory(flat), flat.successors()
        self.missing = flat.wait_counts()
        self.tail = longest_tails(self.successors)
        self.light: set[int] = set()
        self.heavy: list[tuple[int, int]] = []
        self.order: list[int] = []
        self.dead: set[bytes] = set()
        for activity, count in enumerate(self.missing):
            if count == 0:
                self._add(activity)

    def run(self) -> list[int] | None:
        """Return the order, or None."""
        choices: list[tuple[int, tuple[int, int]]] = []
        tried, taken_back = _NOTHING_TRIED, 0
        while True:
            check_deadline()
            if tried == _NOTHING_TRIED:
                self._do_light()
            if len(self.order) == len(self.missing):
                return self.order
            choice = self._next_choice(tried)
            if choice is not None:
                choices.append((len(self.order), choice))
                self._do(choice[1])
                tried = _NOTHING_TRIED
                continue
            # Nothing leads on from here.
            # What is held depends on which activities are done, and not on their order. So a set that leads nowhere
            # does so however it is reached.
            self.dead.add(bytes(self.memory.done))
            taken_back += 1
            if not choices or taken_back > _MOST_CHOICES:
                return None
            length, tried = choices.pop()
            self._back_to(length)

    def _next_choice(self, tried: tuple[int, int]) -> tuple[int, int] | None:
        """Return the first heavy activity behind `tried` that fits; None where there is none."""
        # The copy costs time, which is saved as long as nothing was taken back.
        if self.dead and bytes(self.memory.done) in self.dead:
            return None
        # `heavy` is sorted, and after going back it is the same as before: what comes behind `tried` is still to be
        # tried.
        for place in range(bisect_right(self.heavy, tried), len(self.heavy)):
            if self.memory.fits(self.heavy[place][1]):
                return self.heavy[place]
        return None

    def _do_light(self) -> None:
        """Do all that fits and costs no memory."""
        while fitting := sorted(a for a in self.light if self.memory.fits(a)):
            for activity in fitting:
                if activity in self.light and self.memory.fits(activity):
                    self._do(activity)

    def _do(self, activity: int) -> None:
        self._remove(activity)
        self.memory.do(activity)
        self.order.append(activity)
        for after, _ in self.successors[activity]:
            self.missing[after] -= 1
            if self.missing[after] == 0:
                self._add(after)
        self._sort_partners(activity)

    def _back_to(self, length: int) -> None:
        while len(self.order) > length:
            activity = self.order.pop()
            for after, _ in self.successors[activity]:
                if self.missing[after] == 0:
                    self._remove(after)
                self.missing[after] += 1
            self.memory.undo(activity)
            self._add(activity)
            self._sort_partners(activity)

    def _sort_partners(self, activity: int) -> None:
        """Sort the activities at the other end of memory intervals anew.

        Whether they are light depends on whether this one is done.
        """
        for _, _, other in (*self.flat.opens[activity], *self.flat.closes[activity]):
            if self.missing[other] == 0 and not self.memory.done[other]:
                self._remove(other)
                self._add(other)

    def _add(self, activity: int) -> None:
        if self.memory.grows(activity):
            insort(self.heavy, (self.tail[activity], activity))
        else:
            self.light.add(activity)

    def _remove(self, activity: int) -> None:
        if activity in self.light:
            self.light.discard(activity)
        else:
            del self.heavy[bisect_left(self.heavy, (self.tail[activity], activity))]


def longest_tails(successors: list[list[tuple[int, int]]]) -> list[int]:
    """Return, by activity, the longest way from its start to the start of one that nothing waits for."""
    left = [0] * len(successors)
    for later in successors:
        for after, _ in later:
            left[after] += 1
    order = [a for a, count in enumerate(left) if count == 0]
    for activity in order:
        for after, _ in successors[activity]:
            left[after] -= 1
            if left[after] == 0:
                order.append(after)
    tail = [0] * len(left)
    for activity in reversed(order):
        tail[activity] = max((tail[after] + length for after, length in successors[activity]), default=0)
    return tail

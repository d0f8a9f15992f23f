"""Orders of passes that are as short as others and hold less memory at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jigsaw_opt.errors import WrongPlanError
from jigsaw_opt.planning.pipeline.list_schedule import list_schedule, makespan_us, rules_of
from jigsaw_opt.planning.pipeline.orders import Orders
from jigsaw_opt.planning.pipeline.search import fitting
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, held_bytes, peak_bytes

_CLOSE = 64
"""The least memory is searched for up to one part of so many."""


def with_less_memory(pipeline: PipelineProblem, orders: Orders, is_over: Callable[[], bool]) -> Orders:
    """Return orders of passes with no longer a makespan, whose device that holds most at once holds less if possible.

    Named schedules are compared in any case. List schedules within less and less memory come next, by bisection. At
    last passes that let go of memory move before the forward pass that has a device hold most.
    """
    search = _LessMemory(pipeline, orders, is_over)
    for named in fitting(pipeline).values():
        search.take(named)
    search.schedule_lists()
    search.move_passes()
    return search.orders


class _LessMemory:
    """Orders that hold less and less.

    `orders, peak`: the orders that hold least, and how much that is.
    """

    def __init__(self, pipeline: PipelineProblem, orders: Orders, is_over: Callable[[], bool]) -> None:
        self._pipeline, self._is_over = pipeline, is_over
        self._limit_us = makespan_us(pipeline, orders)
        self.orders, self.peak = orders, max(peak_bytes(pipeline, orders))

    def take(self, orders: Orders) -> bool:
        """Keep orders if they hold less and are no longer; return whether they are."""
        peak = max(peak_bytes(self._pipeline, orders))
        if peak >= self.peak or not self._is_short(orders):
            return False
        self.orders, self.peak = orders, peak
        return True

    def schedule_lists(self) -> None:
        """Search for the least memory that some list schedule of the same length keeps to."""
        low, high = 0, self.peak
        # That no list schedule keeps to `low` proves nothing of other orders, so this is no bound, only a search.
        while high - low > max(1, self.peak // _CLOSE):
            middle = (low + high) // 2
            within = replace(self._pipeline, memory=middle)
            for rule in rules_of(within):
                if self._is_over():
                    return
                found = list_schedule(within, rule)
                if found is not None and found[1] <= self._limit_us and self.take(found[0]):
                    high = self.peak
                    break
            else:
                low = middle

    def move_passes(self) -> None:
        """Move passes that let go of memory before the forward pass at which a device holds most."""
        orders = [list(order) for order in self.orders]
        while self.peak > 0 and not self._is_over():
            # Several devices may hold the most at once, and only if each of them holds less is the peak lower.
            held = held_bytes(self._pipeline, orders)
            highest = [(gpu, most.index(max(most))) for gpu, most in enumerate(held) if max(most) == self.peak]
            if not highest:
                break
            if not all(self._moved(orders, gpu, at) for gpu, at in highest):
                return
            self.take([list(order) for order in orders])

    def _moved(self, orders: Orders, gpu: int, at: int) -> bool:
        """Move the next pass behind a forward one that can be before it; return whether there is one."""
        order = list(orders[gpu])
        for later in range(at + 1, len(order)):
            if order[later].kind == "F":
                continue
            if self._is_over():
                break
            orders[gpu] = [*order[:at], order[later], *order[at:later], *order[later + 1 :]]
            if self._is_short(orders):
                return True
        orders[gpu] = order
        return False

    def _is_short(self, orders: Orders) -> bool:
        try:
            return makespan_us(self._pipeline, orders) <= self._limit_us
        except WrongPlanError:
            return False

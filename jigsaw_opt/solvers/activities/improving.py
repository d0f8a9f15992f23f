"""Two searches on one incumbent, which anneal its orders and reorder windows of it, in turn by what each has earned."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.activities.current import CurrentPlan, adopted, offer_times
from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.activities.neighbourhoods import WindowSearch
from jigsaw_opt.solvers.activities.order_search import OrderSearch
from jigsaw_opt.solvers.activities.repeating import repeated
from jigsaw_opt.solvers.control import Control

__all__ = ["Annealing", "improve"]

_SECONDS_OF_VISIT = 2e-8
"""Deterministic seconds of an activity visited."""
_SHORTEST, _LONGEST = 0.1, 4.0
"""Such seconds of a run: at first, and after many in vain."""
_HOT = (0.0005, 0.002, 0.008, 0.03)
"""Share of the objective that the first steps of a run may lose, by chance one of these."""
_STEPS, _PATIENCE = 20, 200
"""By square of the number of activities, steps of a run at most, and steps in vain after which it ends."""
_MOST_SCORE, _LEAST_SCORE = 1.0, 1 / 32
"""What a search has earned; twice as much after a success, less by a tenth else."""


class _Improver(Protocol):
    spent: float
    exhausted: bool

    def step(self, work: float, seconds: float) -> None: ...


def improve(control: Control, operations: Operations, work: float = math.inf, seconds: float = math.inf) -> float:
    """Improve the incumbent until there is a reason to stop.

    Parameters
    ----------
    control
        The solve under way; it has a plan, and may receive others from elsewhere at the same time.
    operations
        The instance, cut.
    work
        Limit in deterministic seconds.
    seconds
        Limit of the clock, beside those of the solve.

    Returns
    -------
    float
        Deterministic seconds spent.
    """
    searches: list[_Improver] = [Annealing(control, operations), WindowSearch(control, operations)]
    score, used = [1.0] * len(searches), [0.0] * len(searches)
    end = control.seconds + seconds
    while True:
        spent = sum(search.spent for search in searches)
        left = [k for k, search in enumerate(searches) if not search.exhausted]
        if not left or control.reason() is not None or spent >= work or control.seconds >= end:
            return spent
        k = min(left, key=lambda k: used[k] / score[k])
        began, before, objective = control.seconds, searches[k].spent, control.objective
        searches[k].step(work - spent, end - began)
        used[k] += control.seconds - began if control.options.clocked else searches[k].spent - before
        better = control.objective != objective
        score[k] = min(_MOST_SCORE, 2 * score[k]) if better else max(_LEAST_SCORE, 0.9 * score[k])


class Annealing:
    """Anneals the orders of the incumbent, run by run.

    Parameters
    ----------
    control, operations
        As for `improve`.

    Attributes
    ----------
    spent
        Deterministic seconds so far.
    exhausted
        Whether there is no point in going on.
    """

    def __init__(self, control: Control, operations: Operations) -> None:
        self.control, self.operations = control, operations
        self.random = Random(f"orders/{control.options.seed}")
        self.current: CurrentPlan | None = None
        self.spent, self.exhausted = 0.0, False
        self._length, self._idle = _SHORTEST, 0

    def step(self, work: float, seconds: float) -> None:
        """Make one run, within limits in deterministic seconds and by the clock."""
        before = self.current
        self.current = current = adopted(self.control, self.operations, before)
        if current is None:
            self.exhausted = True
            return
        cyclic = self.operations.horizon == "cyclic"
        if before is not current:
            weighted = self.operations.instance.objective == "weighted_completion"
            self._search = OrderSearch(current.flat, self.operations.weights if weighted else (), cyclic)
        size = len(current.starts)
        visits = min(self._length, work) / _SECONDS_OF_VISIT
        steps = max(1, min(_STEPS * size * size, int(visits / size)))
        limit, end = self.spent + work, self.control.seconds + seconds

        def stop(visits: int) -> bool:
            self.spent += max(1, visits) * _SECONDS_OF_VISIT
            return self.control.reason() is not None or self.spent >= limit or self.control.seconds >= end

        hot, seed = self.random.choice(_HOT), self.random.randrange(2**31)
        found = self._search.anneal(in_order(current.flat, current.starts), current.starts, steps, hot, seed, stop)
        better = found.value < current.objective and self._take(current, found.sequence, found.starts)
        self._length = _SHORTEST if better else min(_LONGEST, 1.5 * self._length)
        self._idle = 0 if better else self._idle + steps
        self.exhausted = self._idle > _PATIENCE * size * size

    def _take(self, current: CurrentPlan, sequence: list[int], starts: list[int]) -> bool:
        if self.operations.horizon == "finite":
            return offer_times(self.control, self.operations, current, starts, None)
        repeats = repeated(current.flat, sequence, current.objective - 1)
        if repeats is None:
            return False
        period, starts = repeats
        return offer_times(self.control, self.operations, current, starts, period)


def in_order(flat: FlatActivities, starts: list[int]) -> list[int]:
    """All activities in the order of their starts, each behind those that it waits for in its period."""
    successors = flat.successors()
    missing = [0] * len(starts)
    for later in successors:
        for after, _ in later:
            missing[after] += 1
    ready = sorted((starts[a], a) for a, count in enumerate(missing) if count == 0)
    order = []
    while ready:
        _, activity = heappop(ready)
        order.append(activity)
        for after, _ in successors[activity]:
            missing[after] -= 1
            if missing[after] == 0:
                heappush(ready, (starts[after], after))
    return order

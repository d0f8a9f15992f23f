"""The orders of the incumbent, and those of list schedules in turn, annealed run by run."""

from __future__ import annotations

import math
from operator import add

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.activities.capacities import keeping_capacities
from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.activities.list_scheduling import ListScheduler
from jigsaw_opt.solvers.activities.orders.annealing import OrderSearch
from jigsaw_opt.solvers.activities.orders.current import CurrentPlan, Offer, adopted, offer_times
from jigsaw_opt.solvers.activities.ranks import Ranks, in_order
from jigsaw_opt.solvers.activities.repeating import repeated
from jigsaw_opt.solvers.activities.stepwise import SECONDS_OF_LISTING, SECONDS_OF_VISIT, StepwiseSearch
from jigsaw_opt.solvers.solve_state import SolveState

_SHORTEST, _SHORTEST_ANEW, _LONGEST = 0.1, 1.0, 10.0
"""Deterministic seconds of a run: the first from the incumbent, the first from a list schedule, and the longest."""
_SHARE = 0.1
"""Share of what is left of the limits that the first run from a list schedule takes, if that is more."""
_DRAWS, _FAR = 6, 0.06
"""Number of list schedules whose best is annealed, and how far its period may exceed the incumbent's, as a share."""
_HOT = (0.05, 0.15, 0.5)
"""Initial temperatures of a run, in mean durations of activities; one of them is drawn at random."""
_STEPS, _PATIENCE = 100, 400
"""Per square of the number of activities: most steps of a run, and steps without success that end the search."""


class Annealing(StepwiseSearch):
    """Anneals orders on the GPUs of the incumbent, run by run, from its own one or from list schedules in turn."""

    chance = "orders"

    def __init__(
        self, solve_state: SolveState, operations: Operations, offer: Offer | None = None, stream: int = 0
    ) -> None:
        super().__init__(solve_state, operations, offer, stream)
        self.current: CurrentPlan | None = None
        self._length = {False: _SHORTEST, True: _SHORTEST_ANEW}
        self._idle, self._anew = 0, False

    def step(self, work: float, seconds: float) -> None:
        """Make one run."""
        before = self.current
        self.current = current = adopted(self.solve_state, self.operations, before)
        if current is None:
            self.exhausted = True
            return
        if before is None or before.flat is not current.flat:
            self._prepare(current)
        limit, stop = self.spent + work, self._stop_after(work, seconds)
        if before is None:
            left = min(work, seconds, math.inf if self.solve_state.remaining is None else self.solve_state.remaining)
            self._length[True] = max(_SHORTEST_ANEW, min(_LONGEST, _SHARE * left if left < math.inf else 0.0))
        # Runs from the incumbent and from list schedules take turns.
        size, self._anew = self._search.size, not self._anew
        given = self._list_schedule(current) if self._anew else None
        anew = given is not None
        order, starts, kept = given or (in_order(current.flat, current.starts), current.starts, current.kept())
        search = self._search if kept is current.flat else self._search_among(kept)
        # A step may visit all activities, so that visits over size is the number of steps that fit.
        visits = min(self._length[anew], max(0.0, limit - self.spent)) / SECONDS_OF_VISIT
        steps = max(1, min(_STEPS * size * size, int(visits / size)))
        # The temperature is a share of the objective, but what a move costs goes by durations of activities.
        hot, seed = self.random.choice(_HOT) * self._duration / current.objective, self.random.randrange(2**31)
        found = search.anneal(order, starts, steps, hot, seed, stop)
        better = found.value < current.objective and self._take(current, kept, found.sequence, found.starts)
        self._length[anew] = _SHORTEST if better and not anew else min(_LONGEST, 1.5 * self._length[anew])
        self._idle = 0 if better else self._idle + steps
        self.exhausted = self._idle > _PATIENCE * size * size

    def _prepare(self, current: CurrentPlan) -> None:
        weighted, weights = self.operations.objective == "weighted_completion", self.operations.weights
        self._search = self._search_among(current.flat)
        lengths = [length for length in current.flat.duration_us if length]
        self._duration = sum(lengths) / max(1, len(lengths)) * (max(weights) if weighted else 1)
        reserve = in_order(current.flat, current.starts)
        self._lists = ListScheduler(current.flat, reserve)
        self._ranks = Ranks(current.flat, weights, reserve, self.operations.deadlines)

    def _search_among(self, flat: FlatActivities) -> OrderSearch:
        weighted = self.operations.objective == "weighted_completion"
        return OrderSearch(flat, self.operations.weights if weighted else (), self.operations.horizon == "cyclic")

    def _list_schedule(self, current: CurrentPlan) -> tuple[list[int], list[int], FlatActivities] | None:
        """Return the best of some list schedules by random rules; None where all are far off.

        The result is its order, its starts, and the activities with what keeps capacities in its order.
        """
        least, best = int(current.objective * (1 + _FAR)), None
        for _ in range(_DRAWS):
            rule, blurred = self._ranks.draw(self.random), self.random.random() < 0.5
            rank = self._ranks.rank(rule.order, self.random if blurred else None)
            starts, order = self._lists.run(rank, rule.patience, rule.ahead)
            self.spent += len(order) * SECONDS_OF_LISTING
            if self.operations.horizon == "finite":
                return order, starts, keeping_capacities(current.flat, starts)
            # With a period as long as the schedule, none of its activities reaches into the next one.
            kept = keeping_capacities(current.flat, starts, max(map(add, starts, current.flat.duration_us)))
            repeats = repeated(kept, order, least)
            if repeats is not None:
                # From now on only a shorter period counts.
                least, best = repeats[0] - 1, (order, repeats[1], kept)
            if self.solve_state.reason() is not None:
                break
        return best

    def _take(self, current: CurrentPlan, kept: FlatActivities, sequence: list[int], starts: list[int]) -> bool:
        if self.operations.horizon == "finite":
            return offer_times(self.solve_state, self.offer, self.operations, current, starts, None)
        repeats = repeated(kept, sequence, current.objective - 1)
        if repeats is None:
            return False
        period, starts = repeats
        return offer_times(self.solve_state, self.offer, self.operations, current, starts, period)

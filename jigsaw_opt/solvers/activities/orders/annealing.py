"""Annealing of the orders of a plan: GPUs and links take activities in the order of one sequence of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.activities.held_memory import longest_tails
from jigsaw_opt.solvers.activities.ranks import contracted, in_order, with_delays
from jigsaw_opt.solvers.engines.compiled import fastest, integers, run_in_parts
from jigsaw_opt.solvers.kernels.activity_annealing import anneal_activities
from jigsaw_opt.solvers.kernels.activity_order import ActivityGraph, ActivityOrder
from jigsaw_opt.solvers.kernels.randomness import EXPONENTIALS, LARGEST_SEED

_VISITS, _FEW_VISITS = 4_000_000, 50_000
"""Activities visited until work is counted, and between two checks of the clock where Python visits them; a step may
visit all."""
_LARGEST = 2**55
"""Times that arrays of 64 bits hold: starts grow by many periods."""


@dataclass(frozen=True, slots=True)
class AnnealedOrder:
    """The best order of a run.

    `value`: its objective in microseconds; on the cyclic horizon some period that it admits. `starts`: by activity, in
    microseconds; on the cyclic horizon in some period.
    """

    value: int
    sequence: list[int]
    starts: list[int]


class OrderSearch:
    """Anneals orders of the same placed activities.

    `weights`: by job, the weight of its end; none where the makespan or the period counts.
    """

    def __init__(self, flat: FlatActivities, weights: Sequence[int], cyclic: bool) -> None:
        used = [resource for own in flat.resources for resource in own]
        small, self._kept = contracted(flat)
        self._flat, self.size = flat, len(self._kept)
        self._number = {activity: place for place, activity in enumerate(self._kept)}
        # Whatever the order, no time is further behind the last release than the sum of all there are.
        longest = 2 * (sum(flat.duration_us) + sum(arc.length_us for arc in flat.arcs))
        last = max(flat.release_us, default=0)
        # Compiled functions count in 64 bits: times of several periods, and sums of weighted ends.
        fits = longest < _LARGEST // 10**4 and last < _LARGEST and (longest + last) * sum(weights) < 2**62
        self._anneal, self._own = fastest(anneal_activities, fits)
        graph = _graph_of(small, weights, cyclic)
        self._graph, self._exponentials = self._own(graph), self._own(EXPONENTIALS)
        self._order = self._own(_blank(graph, max([0, *(r + 1 for r in used)]), 1 + max(flat.job)))

    def anneal(
        self,
        sequence: Sequence[int],
        starts: Sequence[int],
        steps: int,
        hot: float,
        seed: int,
        stop: Callable[[int], bool],
    ) -> AnnealedOrder:
        """Return the best order that some steps lead to from another one; it is no worse than that.

        `starts`: on the cyclic horizon, starts of that order that repeat; they are not used on the finite one. `hot`:
        share of the objective that the first steps may lose; it falls to 0. `stop`: called now and then with the number
        of activities visited since; true ends the run.
        """
        order = self._order
        order.sequence[:] = self._own([self._number[a] for a in sequence if a in self._number])
        order.start[:] = self._own([starts[activity] for activity in self._kept])
        order.rng[0] = 1 + seed % (LARGEST_SEED - 1)

        def run(done: int, count: int) -> tuple[int, int]:
            self._anneal(self._graph, order, done, count, steps, hot, self._exponentials)
            return int(order.visits[0]), int(order.steps[0])

        few = _FEW_VISITS if self._anneal is anneal_activities else _VISITS
        run_in_parts(run, steps, _VISITS // self.size, few // self.size, stop)
        found = with_delays(self._flat, self._kept, integers(self._order.best_start))
        return AnnealedOrder(int(order.best_value[0]), in_order(self._flat, found), found)


def _graph_of(flat: FlatActivities, weights: Sequence[int], cyclic: bool) -> ActivityGraph:
    near: list[list[tuple[int, ...]]] = [[] for _ in flat.duration_us]
    far: list[list[tuple[int, ...]]] = [[] for _ in flat.duration_us]
    for before, after, length, periods in flat.arcs:
        if periods:
            far[after].append((before, length, periods))
        else:
            near[after].append((before, length))
    tails = [0] * len(flat.duration_us)
    if not cyclic and not weights:
        tails = longest_tails(flat.successors())
        tails = [max(tail, length) for tail, length in zip(tails, flat.duration_us, strict=True)]
    ends = [
        sorted({gpu for gpu, _, _ in (*opens, *closes)}) for opens, closes in zip(flat.opens, flat.closes, strict=True)
    ]
    columns = [
        *_columns(near, 2),
        *_columns(far, 3),
        *_columns([[(resource,) for resource in own] for own in flat.resources], 1),
        *_columns([[(gpu,) for gpu in own] for own in ends], 1),
        *_columns(flat.opens, 3),
        *_columns(flat.closes, 3),
    ]
    by_activity = [list(flat.duration_us), list(flat.release_us), tails]
    others = [list(flat.room), list(flat.job), list(weights), [int(cyclic)]]
    return ActivityGraph._make([*by_activity, *columns, *others])


def _columns(rows: Sequence[Sequence[tuple[int, ...]]], width: int) -> list[list[int]]:
    """Return where the entries of each row begin, and the columns of all entries."""
    at = [0]
    for row in rows:
        at.append(at[-1] + len(row))
    return [at, *([entry[k] for row in rows for entry in row] for k in range(width))]


def _blank(graph: ActivityGraph, resources: int, jobs: int) -> ActivityOrder:
    """Return an empty order."""
    lengths = dict.fromkeys(ActivityOrder._fields, len(graph.duration)) | {"level": len(graph.hold), "end": jobs}
    lengths |= dict.fromkeys(("free", "user", "taken"), resources) | dict.fromkeys(("held", "held_at"), len(graph.room))
    one = ("criticals", "epoch", "last", "tries", "value", "best_value", "rng", "steps", "visits")
    return ActivityOrder(**{name: [0] * length for name, length in (lengths | dict.fromkeys(one, 1)).items()})

"""Annealing of an order of placed activities, on flat numbers."""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Reals, kernel
from jigsaw_opt.solvers.kernels.activity_moves import propose, set_levels, take_back
from jigsaw_opt.solvers.kernels.activity_order import (
    ActivityGraph,
    ActivityOrder,
    commit,
    evaluate,
    find_critical,
)
from jigsaw_opt.solvers.kernels.randomness import randint

__all__ = ["anneal_activities"]

_TRIES = 64
"""Number of changes without success after which the critical path of another random job is taken."""


def _begin(graph: ActivityGraph, order: ActivityOrder) -> None:
    """Evaluate the order that an annealing begins with; on the cyclic horizon, starts of some period are given."""
    size = len(order.sequence)
    for n in range(size):
        p = order.sequence[n]
        order.old[n], order.position[p], order.trial[p] = p, n, order.start[p]
    for k in range(len(order.level)):
        order.level[k] = 0
    set_levels(graph, order, 0, size - 1, order.held)
    order.value[0] = evaluate(graph, order, 0, -1)
    commit(order, 0)
    order.best_value[0], order.tries[0] = order.value[0], _TRIES
    _save(order)


def _save(order: ActivityOrder) -> None:
    for n in range(len(order.sequence)):
        order.best[n], order.best_start[n] = order.sequence[n], order.start[n]


def _undo(order: ActivityOrder, first: int, last: int) -> None:
    """Reset the trial to the order that is kept."""
    for n in range(first, len(order.sequence)):
        order.trial[order.sequence[n]] = order.start[order.sequence[n]]
    take_back(order, first, last)


@kernel
def anneal_activities(
    graph: ActivityGraph,
    order: ActivityOrder,
    first: int,
    steps: int,
    total: int,
    hot: float,
    exponentials: Reals,
) -> int:
    """Take some steps of an annealing.

    `order`: sequence, starts and the state of the random numbers are given; all of it changes. `first, steps, total`:
    number of the first step, how many to take now, and how many there are in all. `hot`: temperature in step 0, as a
    share of the objective; it falls to 0 with the square of the steps that are left.
    """
    order.visits[0], order.steps[0] = 0, 0
    if first == 0:
        _begin(graph, order)
    # Each evaluation writes `last`; this is the one of the order that is kept.
    critical_end, tries = order.last[0], order.tries[0]
    for step in range(first, first + steps):
        if tries >= _TRIES:
            order.last[0], tries = critical_end, 0
            find_critical(graph, order, randint(order.rng, len(order.end)))
        order.steps[0] += 1
        tries += 1
        if order.criticals[0] == 0:
            tries = _TRIES
            continue
        begin, end = propose(graph, order)
        if begin < 0:
            continue
        left = 1.0 - step / total
        # The Metropolis rule, drawn beforehand: a rise is accepted if it is below the temperature times an exponential
        # variate. So the evaluation may end at the limit.
        share = hot * left * left * exponentials[randint(order.rng, len(exponentials))]
        limit = int(order.value[0] * (1.0 + share))
        value = evaluate(graph, order, begin, limit)
        if value > limit:
            _undo(order, begin, end)
            continue
        set_levels(graph, order, begin, end, order.held)
        # On the cyclic horizon, what comes before the change follows from the period before, and moves as well.
        commit(order, 0 if graph.cyclic[0] != 0 else begin)
        order.value[0], critical_end, tries = value, order.last[0], _TRIES
        if value < order.best_value[0]:
            order.best_value[0] = value
            _save(order)
    order.last[0], order.tries[0] = critical_end, tries
    return order.best_value[0]

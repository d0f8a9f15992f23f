"""Placed activities in an order, on flat numbers: their earliest starts, the objective, and what makes it no less.

Every GPU and link takes activities in the order of one sequence of all of them. On the finite horizon, starts follow
from one pass over it. On the cyclic one, the first activity of a GPU or link waits for the last one a period before.
Starts of a period then follow from those of the period before: a max-plus linear map, whose eigenvalue is the least
period of the order (Baccelli, Cohen, Olsder and Quadrat, *Synchronization and linearity*, 1992, section 3.7). The most
by which it delays what another period waits for is a period that its starts keep.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

_MOST_ITERATIONS = 8
"""Iterations of the map after which its largest delay is good enough."""
_MOST_PERIODS = 2
"""Largest number of periods that the walk along causes passes, since on the cyclic horizon it need not end."""


class ActivityGraph(NamedTuple):
    """Resources and waits of activities. Lists with ``_at`` hold where the entries of an activity begin in the others.

    `duration, release, tail`: by activity; the tail is the longest way from its start to any end, and 0 where that is
    of no use. `pred_at, pred, lag`: activities that it waits for within its period, and its least lag after their
    starts, in microseconds. `far_at, far, far_lag, far_periods`: activities that it waits for `far_periods` periods
    earlier, and its least lag after their starts. `use_at, use`: GPUs and links that it has to itself. `hold_at, hold`:
    GPUs on which memory intervals begin or end with it. `open_at, open_on, open_bytes, open_end`: memory intervals that
    begin with it: GPU, bytes, and the activity with which they end. `close_at, close_on, close_bytes, close_start`:
    memory intervals that end with it: GPU, bytes, and the activity with which they begin. `room`: by GPU, bytes that
    memory intervals may take. `job, weight`: the job of an activity; by job, what a microsecond of its end costs,
    nothing at all where the makespan counts. `cyclic`: whether the period counts, alone in its list.
    """

    duration: Numbers
    release: Numbers
    tail: Numbers
    pred_at: Numbers
    pred: Numbers
    lag: Numbers
    far_at: Numbers
    far: Numbers
    far_lag: Numbers
    far_periods: Numbers
    use_at: Numbers
    use: Numbers
    hold_at: Numbers
    hold: Numbers
    open_at: Numbers
    open_on: Numbers
    open_bytes: Numbers
    open_end: Numbers
    close_at: Numbers
    close_on: Numbers
    close_bytes: Numbers
    close_start: Numbers
    room: Numbers
    job: Numbers
    weight: Numbers
    cyclic: Numbers


class ActivityOrder(NamedTuple):
    """An order that is changed step by step. A single number is stored as a list of length 1.

    `sequence, position, old`: the activities in their order, their numbers in it, and the sequence before the last
    change. `start, cause, trial, trial_cause`: by activity, of the order that is kept and of the one that is tried. A
    cause is three times the activity that it waits for, plus 0 where it does by itself, 1 where on a GPU or link, and 2
    where that is in the period before; -1 where it waits for none. `mark, taken, held, held_at`: by activity, by GPU
    and link, by GPU: the last change in which they took part, and bytes held. `level`: by entry of `hold`, the bytes
    held there before the activity. `free, user`: by GPU and link, the end of the last activity that uses it, and which
    it is. `critical, criticals`: activities on the critical path that wait for a GPU or link, and how many they are.
    `epoch`: A number that nothing is marked with yet. `last`: the activity at the end of the critical path. `tries`:
    changes without success since the critical path was listed. `value, best_value, best, best_start`: objectives of the
    order and of the best one, and that one with its starts. `rng, steps, visits`: state of the random numbers, steps
    taken, and activities visited.
    """

    sequence: Numbers
    position: Numbers
    old: Numbers
    start: Numbers
    cause: Numbers
    trial: Numbers
    trial_cause: Numbers
    previous: Numbers
    mark: Numbers
    taken: Numbers
    held: Numbers
    held_at: Numbers
    level: Numbers
    free: Numbers
    user: Numbers
    end: Numbers
    critical: Numbers
    criticals: Numbers
    epoch: Numbers
    last: Numbers
    tries: Numbers
    value: Numbers
    best_value: Numbers
    best: Numbers
    best_start: Numbers
    rng: Numbers
    steps: Numbers
    visits: Numbers


def evaluate(graph: ActivityGraph, order: ActivityOrder, first: int, limit: int) -> int:
    """Return the objective of the sequence, given where it first differs from the one that is kept.

    The objective, or something beyond the limit. A period may be more than the least one.

    `graph, order`: activities and sequence; `trial` becomes its starts, and `last` the end of the critical path.
    """
    if graph.cyclic[0] != 0:
        return _period(graph, order, limit)
    for r in range(len(order.free)):
        order.free[r], order.user[r] = 0, -1
    if len(graph.weight) == 0:
        return _pass(graph, order, first, limit)
    _pass(graph, order, first, -1)
    return _weighted(graph, order)


def _pass(graph: ActivityGraph, order: ActivityOrder, first: int, limit: int) -> int:
    """Compute starts in the order from `first` on; return the latest end.

    A limit that is not negative ends the pass as soon as it must be passed; a number above the limit is then returned.
    """
    sequence, position, trial, cause = order.sequence, order.position, order.trial, order.trial_cause
    duration, pred_at, pred, lag = graph.duration, graph.pred_at, graph.pred, graph.lag
    use_at, use, free, user = graph.use_at, graph.use, order.free, order.user
    latest, cyclic, period = -1, graph.cyclic[0], order.value[0]
    for n in range(first):
        p = sequence[n]
        stop = trial[p] + duration[p]
        if stop > latest:
            latest, order.last[0] = stop, p
        for k in range(use_at[p], use_at[p + 1]):
            free[use[k]], user[use[k]] = stop, p
    for n in range(first, len(sequence)):
        p = sequence[n]
        moment, why = graph.release[p], -1
        for k in range(pred_at[p], pred_at[p + 1]):
            if trial[pred[k]] + lag[k] > moment:
                moment, why = trial[pred[k]] + lag[k], 3 * pred[k]
        if cyclic != 0:
            for k in range(graph.far_at[p], graph.far_at[p + 1]):
                q = graph.far[k]
                # `previous` lies one period back already, so that one period less is taken off.
                earliest = order.previous[q] + graph.far_lag[k] - (graph.far_periods[k] - 1) * period
                if earliest > moment:
                    moment, why = earliest, 3 * q + 2
        for k in range(use_at[p], use_at[p + 1]):
            q = user[use[k]]
            # Ties go to the GPU or link, since only such a cause can be changed by a move.
            if q >= 0 and free[use[k]] >= moment:
                moment, why = free[use[k]], 3 * q + (1 if position[q] < n else 2)
        trial[p], cause[p] = moment, why
        stop = moment + duration[p]
        if stop > latest:
            latest, order.last[0] = stop, p
        # The tail holds in every order, so no end of this order can be within the limit any more.
        if 0 <= limit < moment + graph.tail[p]:
            order.visits[0] += n + 1
            return limit + 1
        for k in range(use_at[p], use_at[p + 1]):
            free[use[k]], user[use[k]] = stop, p
    order.visits[0] += len(sequence)
    return latest


def _weighted(graph: ActivityGraph, order: ActivityOrder) -> int:
    """Return the weighted sum of the ends of jobs."""
    for j in range(len(order.end)):
        order.end[j] = 0
    for p in range(len(order.trial)):
        order.end[graph.job[p]] = max(order.end[graph.job[p]], order.trial[p] + graph.duration[p])
    total = 0
    for j in range(len(order.end)):
        total += graph.weight[j] * order.end[j]
    return total


def _period(graph: ActivityGraph, order: ActivityOrder, limit: int) -> int:
    """Return a period that the order admits: the least one, or close to it."""
    free, user, previous, trial = order.free, order.user, order.previous, order.trial
    sequence, longest, found = order.sequence, 1, -1
    for n in range(len(sequence)):
        p = sequence[n]
        previous[p] = order.start[p]
        longest = max(longest, graph.duration[p])
        for k in range(graph.use_at[p], graph.use_at[p + 1]):
            free[graph.use[k]], user[graph.use[k]] = order.start[p] + graph.duration[p], p
    for _ in range(_MOST_ITERATIONS):
        _pass(graph, order, 0, -1)
        delay, p = _largest_delay(graph, order)
        found = max(longest, delay)
        if p < 0:
            return longest
        order.last[0] = p
        # Where the causes of the largest delay close a circuit within a period, it is the least period.
        if found <= limit or _closes(order, p):
            break
        for q in range(len(trial)):
            previous[q] = trial[q]
    return found


def _largest_delay(graph: ActivityGraph, order: ActivityOrder) -> tuple[int, int]:
    """Return the largest delay since the period before of what another period waits for, and whose it is."""
    most, latest = 0, -1
    for r in range(len(order.user)):
        q = order.user[r]
        if q >= 0 and (latest < 0 or order.trial[q] - order.previous[q] > most):
            most, latest = order.trial[q] - order.previous[q], q
    for k in range(len(graph.far)):
        q = graph.far[k]
        if latest < 0 or order.trial[q] - order.previous[q] > most:
            most, latest = order.trial[q] - order.previous[q], q
    return most, latest


def _closes(order: ActivityOrder, p: int) -> bool:
    """Return whether causes lead from an activity back to itself in the period before."""
    why = order.trial_cause[p]
    while why >= 0 and why % 3 != 2:
        why = order.trial_cause[why // 3]
    return why == 3 * p + 2


def commit(order: ActivityOrder, first: int) -> None:
    """Keep the order that was tried."""
    for n in range(first, len(order.sequence)):
        p = order.sequence[n]
        order.start[p], order.cause[p] = order.trial[p], order.trial_cause[p]


def find_critical(graph: ActivityGraph, order: ActivityOrder, j: int) -> None:
    """List the activities on the critical path that wait for a GPU or link.

    `j`: the job whose critical path is taken where weights count; otherwise it is not used.
    """
    p, size = order.last[0], len(order.sequence)
    if len(graph.weight) > 0:
        p = -1
        for q in range(size):
            if graph.job[q] == j and (p < 0 or order.start[q] + graph.duration[q] > order.start[p] + graph.duration[p]):
                p = q
    count, passed, why = 0, 0, 0
    while p >= 0 and count < size and passed < _MOST_PERIODS:
        why = order.cause[p]
        if why >= 0 and why % 3 == 1:
            order.critical[count] = p
            count += 1
        if why >= 0 and why % 3 == 2:
            passed += 1
        p = why // 3 if why >= 0 else -1
    order.criticals[0] = count

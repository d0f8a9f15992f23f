"""Annealing of an order of placed activities, and the changes that it makes, on flat numbers."""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Reals, kernel
from jigsaw_opt.solvers.kernels.activity_order import ActivityGraph, ActivityOrder, commit, evaluate, find_critical
from jigsaw_opt.solvers.kernels.randomness import randint

_DOUBLINGS = 6
"""Largest number of activities that one may pass, as a power of two."""


def propose(graph: ActivityGraph, order: ActivityOrder) -> tuple[int, int]:
    """Change the sequence at a random place of the critical path.

    Numbers in the sequence of the first and the last activity that may have moved; -1 for the first where the change
    would turn what waits for one another around or leaves too little memory, and nothing has changed.
    """
    p = order.critical[randint(order.rng, order.criticals[0])]
    q = order.cause[p] // 3
    r = _shared(graph, p, q)
    distance = 1
    if randint(order.rng, 2) == 0:
        # Each doubling is as likely, so that short changes are frequent and long ones happen.
        distance += randint(order.rng, 1 << 1 + randint(order.rng, _DOUBLINGS))
    if randint(order.rng, 2) == 0:
        first, last, moved = _behind(graph, order, r, order.position[p], -1, distance), order.position[p], p
        possible = _mark_before(graph, order, first, last)
    else:
        first, last, moved = order.position[q], _behind(graph, order, r, order.position[q], 1, distance), q
        possible = _mark_after(graph, order, first, last)
    if not possible:
        return -1, -1
    _rearrange(order, first, last, moved == p)
    if not fits(graph, order, first, last, moved):
        take_back(order, first, last)
        return -1, -1
    return first, last


def _shared(graph: ActivityGraph, p: int, q: int) -> int:
    """Return a GPU or link that both activities use, -1 for none."""
    for k in range(graph.use_at[p], graph.use_at[p + 1]):
        for i in range(graph.use_at[q], graph.use_at[q + 1]):
            if graph.use[k] == graph.use[i]:
                return graph.use[k]
    return -1


def _behind(graph: ActivityGraph, order: ActivityOrder, r: int, at: int, step: int, distance: int) -> int:
    """Return the position at which `distance` activities that use a resource are passed, or the last such position."""
    found, n = at, at + step
    while 0 <= n < len(order.sequence) and distance > 0:
        p = order.sequence[n]
        for k in range(graph.use_at[p], graph.use_at[p + 1]):
            if graph.use[k] == r:
                found, distance = n, distance - 1
        n += step
    return found


def _mark_before(graph: ActivityGraph, order: ActivityOrder, first: int, last: int) -> bool:
    """Mark what has to go before `first` along with `last`; return whether that does not include `first` itself."""
    order.epoch[0] += 1
    epoch, mark, taken = order.epoch[0], order.mark, order.taken
    for n in range(last, first - 1, -1):
        p = order.sequence[n]
        moves = mark[p] == epoch or n == last
        for k in range(graph.use_at[p], graph.use_at[p + 1]):
            moves = moves or taken[graph.use[k]] == epoch
        if not moves:
            continue
        if n == first:
            return False
        mark[p] = epoch
        for k in range(graph.pred_at[p], graph.pred_at[p + 1]):
            mark[graph.pred[k]] = epoch
        # Only the activity itself passes others on its GPUs and links. What comes along keeps its order there, so those
        # that it would pass come along, too.
        if n < last:
            for k in range(graph.use_at[p], graph.use_at[p + 1]):
                taken[graph.use[k]] = epoch
    return True


def _mark_after(graph: ActivityGraph, order: ActivityOrder, first: int, last: int) -> bool:
    """Mark what has to go behind `last` along with `first`; return whether that does not include `last` itself."""
    order.epoch[0] += 1
    epoch, mark, taken = order.epoch[0], order.mark, order.taken
    for n in range(first, last + 1):
        p = order.sequence[n]
        moves = n == first
        for k in range(graph.use_at[p], graph.use_at[p + 1]):
            moves = moves or taken[graph.use[k]] == epoch
        for k in range(graph.pred_at[p], graph.pred_at[p + 1]):
            moves = moves or mark[graph.pred[k]] == epoch
        if not moves:
            continue
        if n == last:
            return False
        mark[p] = epoch
        if n > first:
            for k in range(graph.use_at[p], graph.use_at[p + 1]):
                taken[graph.use[k]] = epoch
    return True


def _rearrange(order: ActivityOrder, first: int, last: int, marked_first: bool) -> None:
    """Put the marked activities before the others, or behind them."""
    epoch, at = order.epoch[0], first
    for n in range(first, last + 1):
        order.old[n] = order.sequence[n]
    for side in range(2):
        for n in range(first, last + 1):
            p = order.old[n]
            if ((order.mark[p] == epoch) == marked_first) == (side == 0):
                order.sequence[at], order.position[p] = p, at
                at += 1


def take_back(order: ActivityOrder, first: int, last: int) -> None:
    """Undo a change of the sequence."""
    for n in range(first, last + 1):
        p = order.old[n]
        order.sequence[n], order.position[p] = p, n


def fits(graph: ActivityGraph, order: ActivityOrder, first: int, last: int, moved: int) -> bool:
    """Return whether memory suffices in the new sequence on the GPUs of the activity that was moved.

    Other GPUs need no check: the activities that change memory there keep their order.
    """
    begin, end = graph.hold_at[moved], graph.hold_at[moved + 1]
    if begin == end:
        return True
    _read_levels(graph, order, first, last)
    for n in range(first, last + 1):
        p = order.sequence[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            g = graph.hold[k]
            concerned = False
            for i in range(begin, end):
                concerned = concerned or graph.hold[i] == g
            if concerned and not _do(graph, order, p, g):
                return False
    return True


def _read_levels(graph: ActivityGraph, order: ActivityOrder, first: int, last: int) -> None:
    """Set the bytes held to those before a part of the old sequence, on each GPU that the part concerns."""
    order.epoch[0] += 1
    epoch = order.epoch[0]
    for n in range(first, last + 1):
        p = order.old[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            g = graph.hold[k]
            if order.held_at[g] != epoch:
                order.held_at[g], order.held[g] = epoch, order.level[k]


def _do(graph: ActivityGraph, order: ActivityOrder, p: int, g: int) -> bool:
    """Apply the memory intervals that begin or end with an activity on a GPU; return whether memory suffices."""
    held, position = order.held, order.position
    for k in range(graph.open_at[p], graph.open_at[p + 1]):
        if graph.open_on[k] == g and position[graph.open_end[k]] >= position[p]:
            held[g] += graph.open_bytes[k]
    enough = held[g] <= graph.room[g]
    for k in range(graph.close_at[p], graph.close_at[p + 1]):
        if graph.close_on[k] == g and position[graph.close_start[k]] <= position[p]:
            held[g] -= graph.close_bytes[k]
    return enough


def set_levels(graph: ActivityGraph, order: ActivityOrder, first: int, last: int) -> None:
    """Set the bytes that are held before each activity of a part of the sequence.

    `first, last`: first and last position of the part: the whole sequence, or the part that `fits` has checked.
    """
    _read_levels(graph, order, first, last)
    for n in range(first, last + 1):
        p = order.sequence[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            order.level[k] = order.held[graph.hold[k]]
            _do(graph, order, p, graph.hold[k])


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
    set_levels(graph, order, 0, size - 1)
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
    graph: ActivityGraph, order: ActivityOrder, first: int, steps: int, total: int, hot: float, exponentials: Reals
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
        set_levels(graph, order, begin, end)
        # On the cyclic horizon, what comes before the change follows from the period before, and moves as well.
        commit(order, 0 if graph.cyclic[0] != 0 else begin)
        order.value[0], critical_end, tries = value, order.last[0], _TRIES
        if value < order.best_value[0]:
            order.best_value[0] = value
            _save(order)
    order.last[0], order.tries[0] = critical_end, tries
    return order.best_value[0]

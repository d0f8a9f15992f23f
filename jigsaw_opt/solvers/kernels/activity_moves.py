"""Changes of an order of activities: one is inserted earlier or later, what must stay on its side comes along.

An activity that waits for a GPU or link on the critical path goes before the one that it waits for or an earlier one
there, or the one that it waits for goes behind it or a later one. Of such changes, those within a block of activities
that follow one another without a gap are the neighbourhoods N1 and N6 of job shops (Balas and Vazacopoulos, *Guided
local search with shifting bottleneck for job shop scheduling*, Management Science 44, 1998).
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.kernels.activity_order import ActivityGraph, ActivityOrder
from jigsaw_opt.solvers.kernels.randomness import randint

__all__ = ["fits", "propose", "set_levels", "take_back"]

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
    order.epoch[0] += 1
    epoch = order.epoch[0]
    for n in range(first, last + 1):
        p = order.old[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            g = graph.hold[k]
            if order.held_at[g] != epoch:
                order.held_at[g], order.held[g] = epoch, order.level[k]
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


def set_levels(graph: ActivityGraph, order: ActivityOrder, first: int, last: int, held: Numbers) -> None:
    """Set the bytes that are held before each activity of a part of the sequence.

    `first, last`: first and last position of the part: the whole sequence, or the part that `fits` has checked. `held`:
    by GPU, room to count in.
    """
    order.epoch[0] += 1
    epoch = order.epoch[0]
    for n in range(first, last + 1):
        p = order.old[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            g = graph.hold[k]
            if order.held_at[g] != epoch:
                order.held_at[g], held[g] = epoch, order.level[k]
    for n in range(first, last + 1):
        p = order.sequence[n]
        for k in range(graph.hold_at[p], graph.hold_at[p + 1]):
            order.level[k] = held[graph.hold[k]]
            _do(graph, order, p, graph.hold[k])

"""Schedules as traces on flat numbers: the pieces, and when they start.

A *trace* lists all pieces in an order that keeps the precedences; each starts as early as the pieces before it let it.
Python runs these functions, or numba compiles them into the annealings (`engines.compiled`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

__all__ = [
    "ACROSS",
    "KEPT",
    "WITHIN",
    "Graph",
    "State",
    "adopt",
    "keep",
    "reach",
    "resume",
    "settle",
    "sweep",
    "types_for",
]

KEPT, WITHIN, ACROSS = 0, 1, 2


class Graph(NamedTuple):
    """Pieces: blocks, transfers and barriers, in *groups* that use the same GPU or links, as those of a slot do.

    Parameters
    ----------
    job, group
        By piece.
    before_at, before, need
        Piece p waits for pieces ``before[before_at[p]:before_at[p + 1]]``: for their end where the need is 0, else,
        where their level is no less, for as long as they take to that level.
    first
        By piece: the first piece of its iteration, where blocks come first, then transfers, then the barrier.
    use_at, uses, use
        By group: it has ``use[use_at[g]:use_at[g] + uses[g]]`` to itself.
    cap, table_at, table
        By group, for blocks: the deepest level that memory admits; one takes ``table[table_at[g] + level - 1]``.
    slots, buckets, depth, contributors
        By job: numbers of slots, transfers and levels, and how many slots have to be at the last level.
    freedom
        By job: `KEPT` where levels stay as they are, `WITHIN` where blocks of an iteration may trade them, and `ACROSS`
        where their sum over all iterations is what counts.
    exchange_at, exchange
        By job: transfer b with c contributors takes ``exchange[exchange_at[j] + b * slots[j] + c - 1]``.
    release, begin, last
        By job: no piece starts earlier; its first piece, and the one that is its end.
    weight
        By job: what a microsecond of its end costs; nothing at all where the makespan counts.
    resources
        How many GPUs and links there are, and how many pieces from one *mark* in the trace to the next: a sweep is
        taken up at the last mark before what changes. And a number beyond all times.
    """

    job: Numbers
    group: Numbers
    before_at: Numbers
    before: Numbers
    need: Numbers
    first: Numbers
    use_at: Numbers
    uses: Numbers
    use: Numbers
    cap: Numbers
    table_at: Numbers
    table: Numbers
    slots: Numbers
    buckets: Numbers
    depth: Numbers
    contributors: Numbers
    freedom: Numbers
    exchange_at: Numbers
    exchange: Numbers
    release: Numbers
    begin: Numbers
    last: Numbers
    weight: Numbers
    resources: Numbers


class State(NamedTuple):
    """A schedule, and the best one so far.

    Parameters
    ----------
    trace
        The pieces in their order.
    level, duration, start, cause
        By piece; levels of transfers and barriers are 0, and the cause is the piece that it waits for, -1 for none.
    best_trace, best_level, best_start
        The best schedule.
    numbers
        Its objective, that of the schedule at hand, the state of chance, one that is not used here, how many pieces
        were swept at most, and how many steps were taken.
    next_trace, next_start, next_cause
        Another schedule that is tried; between two steps, trace and starts of the one at hand.
    position, tail
        By piece: its number in the trace, and where the makespan counts, the longest path from its start to the end.
    free, user
        By GPU and link, the end of the last piece that uses it, and which it is; room for a sweep.
    mark_free, mark_user
        The same at every mark in the trace, one row after the other.
    moves
        By piece, the last exchange in which it moved.
    """

    trace: Numbers
    level: Numbers
    duration: Numbers
    start: Numbers
    cause: Numbers
    best_trace: Numbers
    best_level: Numbers
    best_start: Numbers
    numbers: Numbers
    next_trace: Numbers
    next_start: Numbers
    next_cause: Numbers
    position: Numbers
    tail: Numbers
    free: Numbers
    user: Numbers
    mark_free: Numbers
    mark_user: Numbers
    moves: Numbers


def sweep(
    graph: Graph, state: State, trace: Numbers, first: int, final: int, start: Numbers, cause: Numbers, limit: float
) -> tuple[int, int]:
    """Start every piece from one on as early as may be in the order of a trace.

    Parameters
    ----------
    graph, state
        See there; the pieces before the first one start as in the state.
    trace
        The order.
    first, final
        Numbers of the first piece and the last one that differ from those of the state, in place or in length.
    start, cause
        By piece, to be filled from the first one on.
    limit
        As soon as the objective must pass it the sweep ends.

    Returns
    -------
    int, int
        The objective, or as soon as it must pass the limit, something between the limit and it; and the number of the
        first piece that was not reached.
    """
    level, duration, free, user = state.level, state.duration, state.free, state.user
    position, tail = state.position, state.tail
    job, group, before_at, before, need = graph.job, graph.group, graph.before_at, graph.before, graph.need
    use_at, uses, use, table_at, table = graph.use_at, graph.uses, graph.use, graph.table_at, graph.table
    release, last, weight = graph.release, graph.last, graph.weight
    weighted = len(weight) > 0
    value = 0
    for j in range(len(last)):
        if position[last[j]] < first:
            value = value + weight[j] * start[last[j]] if weighted else max(value, start[last[j]])
    for n in range(first, len(trace)):
        p = trace[n]
        moment, why = release[job[p]], -1
        for k in range(before_at[p], before_at[p + 1]):
            q = before[k]
            if need[k] == 0:
                after = start[q] + duration[q]
            elif level[q] >= need[k]:
                after = start[q] + table[table_at[group[q]] + need[k] - 1]
            else:
                continue
            if after > moment:
                moment, why = after, q
        # Pieces without length may lie anywhere.
        if duration[p] > 0:
            here = use_at[group[p]]
            there = here + uses[group[p]]
            for k in range(here, there):
                r = use[k]
                if free[r] >= moment and user[r] >= 0:
                    moment, why = free[r], user[r]
            for k in range(here, there):
                free[use[k]], user[use[k]] = moment + duration[p], p
        start[p], cause[p] = moment, why
        if weighted:
            if p == last[job[p]]:
                value += weight[job[p]] * moment
        else:
            # What comes behind the last change keeps its order and lengths, so its longest path is as it was.
            value = max(value, moment + tail[p] if n > final else moment)
        if value > limit:
            return value, n + 1
    return value, len(trace)


def resume(graph: Graph, state: State, first: int) -> None:
    """Work out what uses GPUs and links before a piece of the trace."""
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    trace, start, duration, free, user = state.trace, state.start, state.duration, state.free, state.user
    count, stride = graph.resources[0], graph.resources[1]
    row = first // stride
    for r in range(count):
        free[r] = state.mark_free[row * count + r] if row else 0
        user[r] = state.mark_user[row * count + r] if row else -1
    for n in range(row * stride, first):
        p = trace[n]
        if duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                free[use[k]], user[use[k]] = start[p] + duration[p], p


def settle(graph: Graph, state: State, first: int) -> None:
    """Write down what follows from the schedule at hand, whose pieces from one on are new."""
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    trace, start, duration, free, user = state.trace, state.start, state.duration, state.free, state.user
    count, stride = graph.resources[0], graph.resources[1]
    resume(graph, state, first)
    for n in range(first, len(trace)):
        p = trace[n]
        if n % stride == 0:
            at = n // stride * count
            for r in range(count):
                state.mark_free[at + r], state.mark_user[at + r] = free[r], user[r]
        state.next_trace[n], state.next_start[p], state.position[p] = p, start[p], n
        if duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                free[use[k]], user[use[k]] = start[p] + duration[p], p


def adopt(state: State, first: int) -> int:
    """Make the next schedule, which differs from one piece on, the one at hand; returns the first piece that moves."""
    trace, start, cause, moved = state.trace, state.start, state.cause, first
    # In the order of starts, with what starts together as it was: so few pieces lie between two neighbours.
    for n in range(first, len(trace)):
        p, k = state.next_trace[n], n
        start[p], cause[p] = state.next_start[p], state.next_cause[p]
        while k > 0 and start[trace[k - 1]] > start[p]:
            trace[k] = trace[k - 1]
            k -= 1
        trace[k] = p
        moved = min(moved, k)
    return moved


def keep(state: State) -> None:
    """Write down the schedule at hand as the best one."""
    for n in range(len(state.trace)):
        state.best_trace[n], state.best_start[n], state.best_level[n] = state.trace[n], state.start[n], state.level[n]


def reach(graph: Graph, state: State) -> None:
    """Work out the tails of the schedule at hand."""
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    before_at, before, need, table_at, table = graph.before_at, graph.before, graph.need, graph.table_at, graph.table
    trace, duration, level, tail, user = state.trace, state.duration, state.level, state.tail, state.user
    for p in range(len(trace)):
        tail[p] = 0
    for r in range(len(user)):
        user[r] = -1
    for n in range(len(trace) - 1, -1, -1):
        p = trace[n]
        most = tail[p]
        if duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                q = user[use[k]]
                if q >= 0:
                    most = max(most, duration[p] + tail[q])
                user[use[k]] = p
        tail[p] = most
        for k in range(before_at[p], before_at[p + 1]):
            q = before[k]
            if need[k] == 0:
                tail[q] = max(tail[q], duration[q] + most)
            elif level[q] >= need[k]:
                tail[q] = max(tail[q], table[table_at[group[q]] + need[k] - 1] + most)


def types_for(kind: type[Any]) -> Callable[[Any], Any]:
    """Signature of an annealing whose state is a tuple of this kind, for `compilable`."""

    def types(numba: Any) -> Any:
        integer, numbers, real, reals = numba.int64, numba.int64[::1], numba.float64, numba.float64[::1]
        graph, state = (numba.types.NamedUniTuple(numbers, len(one._fields), one) for one in (Graph, kind))
        return integer(graph, state, integer, integer, integer, real, real, reals)

    return types

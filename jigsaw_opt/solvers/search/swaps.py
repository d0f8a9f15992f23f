"""The order of pieces on GPUs and links, and who takes which level, annealed along critical paths, on flat numbers.

Python runs `anneal`, or numba has compiled it (`engines.compiled`). A schedule is a *trace*, all pieces in an order
that keeps the precedences; each starts as early as the pieces before it let it. Most steps look at the longest path to
the end of a job. Either two pieces of different jobs on it, which follow one another without a gap on a GPU or link,
change places: these are the only exchanges of neighbours that can make that end earlier (Van Laarhoven, Aarts and
Lenstra, *Job shop scheduling by simulated annealing*, Operations Research 40, 1992). Or a block on it trades levels
with another one of its job. The other steps shift all pieces of a job to and fro.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, compilable

__all__ = ["ACROSS", "KEPT", "WITHIN", "Graph", "State", "anneal", "hopeless"]

KEPT, WITHIN, ACROSS = 0, 1, 2

_TRIES = 3
"""How often a schedule is changed in vain before its longest paths are worked out, which takes as long as a sweep."""
_KINDS = 8
"""One in so many steps shifts a whole job; of the others more than half trade levels."""
_HOPE = 0.2
"""By what share of it an annealing may well pass what it has to come down to. After a change of the placement 97 of 100
that end within 1 % of the schedule before are at most 0.11 to 0.22 above it after the first sweep, 0.15 after a tenth
of the steps and 0.06 after four tenths; half of all are above that to the end."""


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
        taken up at the last mark before what changes.
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


def critical(graph: Graph, level: Numbers, cause: Numbers, j: int, trades: int, seed: int) -> int:
    """Some piece on the longest path to the end of a job that may trade levels, or waits for another job's; or -1."""
    job, freedom = graph.job, graph.freedom
    p, seen, found = graph.last[j], 0, -1
    while p >= 0:
        q = cause[p]
        if (level[p] > 0 and freedom[job[p]] != KEPT) if trades else (q >= 0 and job[q] != job[p]):
            seen += 1
            seed = seed * 48271 % 2147483647
            if seed % seen == 0:
                found = p
        p = q
    return found


def partner(graph: Graph, p: int, seed: int) -> int:
    """A block drawn at random from those that a block may trade levels with, which may be itself."""
    j = graph.job[p]
    slots = graph.slots[j]
    q = graph.first[p] + seed % slots
    if graph.freedom[j] == ACROSS:
        width = slots + graph.buckets[j] + 1
        seed = seed * 48271 % 2147483647
        q = graph.begin[j] + seed % ((graph.last[j] + 1 - graph.begin[j]) // width) * width + seed // 65536 % slots
    return q


def admitted(graph: Graph, level: Numbers, p: int, q: int, less: int) -> bool:
    """Whether block p may be so many levels less deep and block q deeper by as many."""
    j, cap, group = graph.job[p], graph.cap, graph.group
    low, high = level[p] - less, level[q] + less
    if low < 1 or high < 1 or low > cap[group[p]] or high > cap[group[q]]:
        return False
    for n in range(2):
        full, at = 0, graph.first[p] if n == 0 else graph.first[q]
        for b in range(at, at + graph.slots[j]):
            after = low if b == p else high if b == q else level[b]
            full += after == graph.depth[j]
        if full < graph.contributors[j]:
            return False
    return True


def traded(graph: Graph, level: Numbers, p: int, q: int, seed: int) -> int:
    """By how many levels block p may become less deep and block q deeper, all that differ or one; 0 for none."""
    less = 1 if graph.freedom[graph.job[p]] == ACROSS and seed % 2 else level[p] - level[q]
    return less if p != q and less != 0 and admitted(graph, level, p, q, less) else 0


def timed(graph: Graph, level: Numbers, duration: Numbers, at: int) -> None:
    """Durations of the pieces of an iteration, given its first one."""
    j = graph.job[at]
    slots, buckets = graph.slots[j], graph.buckets[j]
    for p in range(at, at + slots):
        duration[p] = graph.table[graph.table_at[graph.group[p]] + level[p] - 1]
    for b in range(buckets):
        count = 0
        for p in range(at, at + slots):
            count += level[p] > b
        duration[at + slots + b] = graph.exchange[graph.exchange_at[j] + b * slots + count - 1]


def deepen(graph: Graph, level: Numbers, duration: Numbers, p: int, q: int, less: int) -> None:
    """Make block p so many levels less deep, and block q deeper by as many."""
    level[p] -= less
    level[q] += less
    timed(graph, level, duration, graph.first[p])
    if graph.first[q] != graph.first[p]:
        timed(graph, level, duration, graph.first[q])


def swapped(
    graph: Graph,
    trace: Numbers,
    position: Numbers,
    u: int,
    v: int,
    later: int,
    after: Numbers,
    moves: Numbers,
    turn: int,
) -> None:
    """Put u behind v, or v before u, in another trace; what must stay on the same side of it comes along.

    Those that move have `turn`, which none has yet, in `moves`.
    """
    before_at, before = graph.before_at, graph.before
    first, final = position[u], position[v]
    if later:
        moves[u] = turn
        for n in range(first + 1, final):
            p = trace[n]
            for k in range(before_at[p], before_at[p + 1]):
                if moves[before[k]] == turn:
                    moves[p] = turn
    else:
        moves[v] = turn
        for n in range(final, first, -1):
            p = trace[n]
            if moves[p] == turn:
                for k in range(before_at[p], before_at[p + 1]):
                    # On a circle a piece may also wait for one behind it, in the period before.
                    if position[before[k]] < n:
                        moves[before[k]] = turn
    at = first
    for side in range(2):
        for n in range(first, final + 1):
            if (moves[trace[n]] != turn) == (side != later):
                after[at] = trace[n]
                at += 1


def shifted(graph: Graph, trace: Numbers, start: Numbers, j: int, scale: int, after: Numbers) -> None:
    """The trace with all pieces of a job where they would be if they started at a share `scale` / 256 of their time."""
    job = graph.job
    size = len(trace)
    own = other = 0
    for n in range(size):
        while own < size and job[trace[own]] != j:
            own += 1
        while other < size and job[trace[other]] == j:
            other += 1
        if own < size and (other == size or start[trace[own]] * scale // 256 < start[trace[other]]):
            after[n] = trace[own]
            own += 1
        else:
            after[n] = trace[other]
            other += 1


def hopeless(least: int, worth: float, left: float) -> bool:
    """Whether an annealing is not likely to come down to what it is worth in the share of its steps that is left."""
    return least > worth * (1.0 + _HOPE * left * left)


def anneal(
    graph: Graph, state: State, first: int, steps: int, total: int, hot: float, worth: float, exponentials: Reals
) -> int:
    """Take some steps of an annealing.

    Parameters
    ----------
    graph
        The pieces.
    state
        See there; trace, levels and the state of chance are given, and all of it changes.
    first, steps, total
        Number of the first step, how many to take now, and how many there are in all.
    hot
        By what share of it the objective may well rise in step 0; this falls to 0 with the square of what is left.
    worth
        What the objective has to come down to for the schedule to be of use; the steps end where that is out of reach.
    exponentials
        Quantiles of the exponential distribution of mean 1.

    Returns
    -------
    int
        Objective of the best schedule.
    """
    trace, level, duration, start, cause = state[:5]
    numbers, after, begun, why, position = state[8:13]
    last, weight = graph.last, graph.weight
    size, jobs = len(trace), len(last)
    for p in range(size):
        state.moves[p], position[p] = -1, size
    if first == 0:
        for p in range(size):
            if graph.first[p] == p:
                timed(graph, level, duration, p)
        resume(graph, state, 0)
        numbers[0] = numbers[1] = sweep(graph, state, trace, 0, size, start, cause, 1e300)[0]
        keep(state)
    settle(graph, state, 0)
    least, value, seed, tries = numbers[0], numbers[1], numbers[2], 0
    taken = 0
    for step in range(first, first + steps):
        left = 1.0 - step / total
        if hopeless(least, worth, left):
            break
        taken += 1
        seed = seed * 48271 % 2147483647
        j = seed % jobs
        if len(weight) == 0:
            for other in range(jobs):
                if start[last[other]] > start[last[j]]:
                    j = other
        seed = seed * 48271 % 2147483647
        kind = seed % _KINDS
        trades = kind % 2
        seed = seed * 48271 % 2147483647
        p = q = less = changed = 0
        final = size - 1
        if kind == 0:
            shifted(graph, trace, start, j, seed % 512, after)
            while changed < size and after[changed] == trace[changed]:
                changed += 1
        else:
            p = critical(graph, level, cause, j, trades, seed)
            if p < 0:
                continue
            seed = seed * 48271 % 2147483647
            if trades:
                q = partner(graph, p, seed)
                seed = seed * 48271 % 2147483647
                less = traded(graph, level, p, q, seed)
                if less == 0:
                    continue
                deepen(graph, level, duration, p, q, less)
                behind = graph.slots[graph.job[p]] + graph.buckets[graph.job[p]]
                changed = min(position[p], position[q])
                final = max(position[graph.first[p] + behind], position[graph.first[q] + behind])
            else:
                q = cause[p]
                changed, final = position[q], position[p]
                swapped(graph, trace, position, q, p, seed % 2, after, state.moves, step)
        seed = seed * 48271 % 2147483647
        limit = value * (1.0 + hot * left * left * exponentials[seed % len(exponentials)])
        resume(graph, state, changed)
        known = final if tries >= _TRIES else size
        objective, reached = sweep(graph, state, after, changed, known, begun, why, limit)
        if objective > limit:
            if trades:
                deepen(graph, level, duration, q, p, less)
            for n in range(changed, reached):
                begun[after[n]] = start[after[n]]
            for n in range(changed, final + 1):
                after[n] = trace[n]
            tries += 1
            if tries == _TRIES and len(weight) == 0:
                reach(graph, state)
            continue
        value, tries = objective, 0
        settle(graph, state, adopt(state, changed))
        if value < least:
            least = value
            keep(state)
    numbers[0], numbers[1], numbers[2], numbers[4], numbers[5] = least, value, seed, (taken + 1) * size, taken
    return least


def types_for(kind: type[Any]) -> Callable[[Any], Any]:
    """Signature of an annealing whose state is a tuple of this kind, for `compilable`."""

    def types(numba: Any) -> Any:
        integer, numbers, real, reals = numba.int64, numba.int64[::1], numba.float64, numba.float64[::1]
        graph, state = (numba.types.NamedUniTuple(numbers, len(one._fields), one) for one in (Graph, kind))
        return integer(graph, state, integer, integer, integer, real, real, reals)

    return types


compilable(
    anneal,
    types_for(State),
    parts=(
        resume,
        sweep,
        settle,
        adopt,
        keep,
        reach,
        critical,
        partner,
        admitted,
        traded,
        timed,
        deepen,
        swapped,
        shifted,
        hopeless,
    ),
)

"""The order of pieces around a circle, and who takes which level, annealed along critical circuits, on flat numbers.

Python runs `anneal_cyclic_sequence`, or numba has compiled it (`engines.compiled`). A cyclic schedule is a *trace* as
on a line, cut anywhere: a piece whose predecessor, in its job or on its GPU or links, stands behind it in the trace
waits for that one in the period before. Starts of a period follow from those of the period before by one sweep over the
trace, a *turn*. That is a max-plus linear map: its eigenvalue is the least period that the order admits, the largest
ratio of length to periods over all circuits of pieces that wait for one another. The most by which a turn delays a
piece that another period waits for is a period that its starts keep; the circuit that the causes of waiting close is a
lower bound (Baccelli, Cohen, Olsder and Quadrat, *Synchronization and linearity*, 1992, sections 3.2 and 3.7).

Most steps look at such a circuit: two pieces of different jobs on it, neighbours on a GPU or link, change places, or a
block on it trades levels. The others turn all pieces of a job against the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, compilable
from jigsaw_opt.solvers.kernels.sequence import KEPT, Graph, types_for
from jigsaw_opt.solvers.kernels.sequence_moves import admitted, beyond_cutoff, deepen, partner, swapped, timed, traded

__all__ = ["CyclicState", "anneal_cyclic_sequence"]

_KINDS = 8
"""One in so many steps turns a whole job; of the others about half trade levels."""
_TURNS, _MORE_TURNS = 8, 24
"""After how many turns an order is given up, and when the period of one that is kept is good enough."""


class CyclicState(NamedTuple):
    """A cyclic schedule, and the best one so far.

    Parameters
    ----------
    trace
        The pieces in their order.
    level, duration, start, cause, lag
        By piece; the cause is the piece that it waits for, and the lag how long after the start of that one.
    best_trace, best_level, best_start, critical
        The best schedule; by job, whether it is on its critical circuit.
    numbers
        Its period, that of the schedule at hand, the state of chance, a piece on its critical circuit, how many
        pieces were swept, and how many steps were taken.
    next_trace, next_start, next_cause, next_lag, next_position
        Another schedule that is tried.
    position
        By piece: its number in the trace.
    free, user
        By GPU and link, the end of the last piece that uses it, and which it is.
    moves, marks
        Room by piece: the last exchange in which it moved; the last turn in which another period waited for it.
    """

    trace: Numbers
    level: Numbers
    duration: Numbers
    start: Numbers
    cause: Numbers
    lag: Numbers
    best_trace: Numbers
    best_level: Numbers
    best_start: Numbers
    critical: Numbers
    numbers: Numbers
    next_trace: Numbers
    next_start: Numbers
    next_cause: Numbers
    next_lag: Numbers
    next_position: Numbers
    position: Numbers
    free: Numbers
    user: Numbers
    moves: Numbers
    marks: Numbers


def turn(graph: Graph, state: CyclicState, stamp: int) -> tuple[int, int]:
    """Start every piece of the next schedule a period later.

    Returns
    -------
    int, int
        The largest delay of a piece that another period waits for, and which it is.
    """
    level, duration, free, user, marks = state.level, state.duration, state.free, state.user, state.marks
    trace, start, cause, lag, position = state[11:16]
    job, group, before_at, before, need = graph.job, graph.group, graph.before_at, graph.before, graph.need
    use_at, uses, use, table_at, table = graph.use_at, graph.uses, graph.use, graph.table_at, graph.table
    before_all = -graph.resources[2]
    most, latest = before_all, -1
    for n in range(len(trace)):
        p = trace[n]
        moment, why, wait = before_all, -1, 0
        for k in range(before_at[p], before_at[p + 1]):
            q = before[k]
            if need[k] == 0:
                length = duration[q]
            elif level[q] >= need[k]:
                length = table[table_at[group[q]] + need[k] - 1]
            else:
                continue
            if position[q] > n:
                marks[q] = stamp
            if start[q] + length > moment:
                moment, why, wait = start[q] + length, q, length
        # Pieces without length may lie anywhere.
        if duration[p] > 0:
            here = use_at[group[p]]
            there = here + uses[group[p]]
            for k in range(here, there):
                r = use[k]
                q = user[r]
                if position[q] >= n:
                    marks[q] = stamp
                if free[r] > moment or (free[r] == moment and job[q] != job[p]):
                    moment, why, wait = free[r], q, duration[q]
            for k in range(here, there):
                free[use[k]], user[use[k]] = moment + duration[p], p
        if marks[p] == stamp and moment - start[p] > most:
            most, latest = moment - start[p], p
        start[p], cause[p], lag[p] = moment, why, wait
    return most, latest


def circuit(state: CyclicState, p: int, stamp: int) -> tuple[int, int, int]:
    """The circuit that causes lead to from a piece of the next schedule: its length, periods, and a piece on it."""
    moves, cause, lag, position = state.moves, state.next_cause, state.next_lag, state.next_position
    while moves[p] != stamp:
        moves[p] = stamp
        p = cause[p]
    length, periods, q = 0, 0, p
    while periods == 0 or q != p:
        length += lag[q]
        periods += 1 if position[cause[q]] >= position[q] else 0
        q = cause[q]
    return length, periods, p


def period(graph: Graph, state: CyclicState, limit: float, stamp: int) -> tuple[int, int, int]:
    """Find out in what period the next trace can be kept, whose starts are some of the period before.

    Parameters
    ----------
    graph, state
        See there.
    limit
        It ends as soon as the period must pass it.
    stamp
        A number that nothing is marked with yet; `_MORE_TURNS` such follow.

    Returns
    -------
    int, int, int
        The period, or something beyond the limit; a piece on the critical circuit; and how many turns that took.
    """
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    trace, start, position = state.next_trace, state.next_start, state.next_position
    for n in range(len(trace)):
        p = trace[n]
        position[p] = n
        if state.duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                state.free[use[k]], state.user[use[k]] = start[p] + state.duration[p], p
    most, p = graph.resources[2], -1
    for count in range(_MORE_TURNS):
        most, p = turn(graph, state, stamp + count)
        length, periods, p = circuit(state, p, stamp + count)
        if length > limit * periods or (count + 1 >= _TURNS and most > limit):
            return graph.resources[2], p, count + 1
        if length > (most - 1) * periods:
            return max(1, most), p, count + 1
    return max(1, most), p, _MORE_TURNS


def rotate(state: CyclicState, first: int, value: int) -> None:
    """Cut the schedule at hand, whose period is known, before another piece."""
    trace, start, position, room = state.trace, state.start, state.position, state.next_trace
    size = len(trace)
    base = start[trace[first]]
    for n in range(first):
        start[trace[n]] += value
    for n in range(size):
        room[n] = trace[(first + n) % size]
    for n in range(size):
        trace[n] = room[n]
        position[trace[n]] = n
        start[trace[n]] -= base


def turned(graph: Graph, state: CyclicState, j: int, by: int, value: int) -> None:
    """The next trace, and its starts, with all pieces of a job later by less than a period, around the circle."""
    job = graph.job
    trace, start, after, begun = state.trace, state.start, state.next_trace, state.next_start
    size = len(trace)
    end = start[trace[0]] + value
    # The first one of the job to come, from which on its pieces pass the cut.
    first = size
    for n in range(size):
        p = trace[n]
        if job[p] == j:
            begun[p] += by
            if first == size and start[p] + by >= end:
                first = n
    for n in range(first, size):
        if job[trace[n]] == j:
            begun[trace[n]] -= value
    own = other = 0
    for at in range(size):
        while own < size and job[trace[(first + own) % size]] != j:
            own += 1
        while other < size and job[trace[other]] == j:
            other += 1
        p = trace[(first + own) % size]
        if own < size and (other == size or begun[p] < begun[trace[other]]):
            after[at] = p
            own += 1
        else:
            after[at] = trace[other]
            other += 1


def take(state: CyclicState) -> None:
    """Make the next schedule the one at hand, in the order of starts."""
    trace, start, cause, lag = state.trace, state.start, state.cause, state.lag
    base = state.next_start[state.next_trace[0]]
    for n in range(len(trace)):
        p, k = state.next_trace[n], n
        start[p], cause[p], lag[p] = state.next_start[p] - base, state.next_cause[p], state.next_lag[p]
        while k > 0 and start[trace[k - 1]] > start[p]:
            trace[k] = trace[k - 1]
            k -= 1
        trace[k] = p
    for n in range(len(trace)):
        state.position[trace[n]] = n


def preserve(graph: Graph, state: CyclicState, on: int) -> None:
    """Write down the schedule at hand, given a piece on its critical circuit, as the best one."""
    for n in range(len(state.trace)):
        state.best_trace[n], state.best_start[n], state.best_level[n] = state.trace[n], state.start[n], state.level[n]
    for j in range(len(state.critical)):
        state.critical[j] = 0
    p = on
    while True:
        state.critical[graph.job[p]] = 1
        p = state.cause[p]
        if p == on:
            return


def chosen(graph: Graph, state: CyclicState, p: int, trades: int, seed: int) -> int:
    """Some piece on the circuit of a piece that may trade levels, or waits for another job's; or -1."""
    job, freedom, level, cause = graph.job, graph.freedom, state.level, state.cause
    seen, found, q = 0, -1, p
    while True:
        why = cause[q]
        if (level[q] > 0 and freedom[job[q]] != KEPT) if trades else job[why] != job[q]:
            seen += 1
            seed = seed * 48271 % 2147483647
            if seed % seen == 0:
                found = q
        q = why
        if q == p:
            return found


def anneal_cyclic_sequence(
    graph: Graph, state: CyclicState, first: int, steps: int, total: int, hot: float, worth: float, exponentials: Reals
) -> int:
    """Take some steps of an annealing.

    Parameters
    ----------
    graph
        The pieces; the first ones of a job wait for its last one.
    state
        See there; trace, levels, starts and the state of chance are given, and all of it changes.
    first, steps, total
        Number of the first step, how many to take now, and how many there are in all.
    hot
        By what share of it the period may well rise in step 0; this falls to 0 with the square of what is left.
    worth
        What the period has to come down to for the schedule to be of use; the steps end where that is out of reach.
    exponentials
        Quantiles of the exponential distribution of mean 1.

    Returns
    -------
    int
        Period of the best schedule.
    """
    trace, level, duration, start = state[:4]
    numbers, after, begun = state.numbers, state.next_trace, state.next_start
    size, jobs = len(trace), len(graph.last)
    for p in range(size):
        state.moves[p] = state.marks[p] = -1
    stamp = turns = 0
    if first == 0:
        for p in range(size):
            if graph.first[p] == p:
                timed(graph, level, duration, p)
            after[p], begun[p] = trace[p], start[p]
        value, numbers[3], turns = period(graph, state, 1e300, 0)
        numbers[0] = numbers[1] = value
        take(state)
        preserve(graph, state, numbers[3])
        stamp = _MORE_TURNS
    least, value, seed, on = numbers[0], numbers[1], numbers[2], numbers[3]
    taken = 0
    for step in range(first, first + steps):
        left = 1.0 - step / total
        if beyond_cutoff(least, worth, left):
            break
        taken += 1
        seed = seed * 48271 % 2147483647
        kind = seed % _KINDS
        trades = kind % 2
        seed = seed * 48271 % 2147483647
        p = q = less = 0
        if kind:
            p = chosen(graph, state, on, trades, seed)
            if p < 0:
                continue
            seed = seed * 48271 % 2147483647
            if trades:
                q = partner(graph, p, seed)
                seed = seed * 48271 % 2147483647
                less = traded(graph, level, p, q, seed)
                if less == 0:
                    continue
            else:
                q = state.cause[p]
                if state.position[q] > state.position[p]:
                    rotate(state, state.position[q], value)
        for n in range(size):
            after[n], begun[n] = trace[n], start[n]
        if kind == 0:
            j = seed % jobs
            seed = seed * 48271 % 2147483647
            turned(graph, state, j, seed % value, value)
        elif trades:
            deepen(graph, level, duration, p, q, less)
        else:
            swapped(graph, trace, state.position, q, p, seed % 2, after, state.moves, stamp)
            stamp += 1
        seed = seed * 48271 % 2147483647
        limit = value * (1.0 + hot * left * left * exponentials[seed % len(exponentials)])
        objective, where, count = period(graph, state, limit, stamp)
        stamp += _MORE_TURNS
        turns += count
        if objective > limit:
            if trades:
                deepen(graph, level, duration, q, p, less)
            continue
        value, on = objective, where
        take(state)
        if value < least:
            least = value
            preserve(graph, state, on)
    numbers[0], numbers[1], numbers[2], numbers[3] = least, value, seed, on
    numbers[4], numbers[5] = turns * size, taken
    return least


compilable(
    anneal_cyclic_sequence,
    types_for(CyclicState),
    parts=(
        turn,
        circuit,
        period,
        rotate,
        turned,
        take,
        preserve,
        chosen,
        swapped,
        partner,
        admitted,
        traded,
        timed,
        deepen,
        beyond_cutoff,
    ),
)

"""The least period of an operation sequence on the cyclic horizon, on flat numbers.

A cyclic schedule is a sequence, cut anywhere: an operation whose predecessor, in its job or on its GPU or links, stands
behind it in the sequence waits for that one in the period before. Starts of a period follow from those of the period
before by one pass over the sequence. That is a max-plus linear map: its eigenvalue is the least period that the order
admits, the largest ratio of length to periods over all circuits of operations that wait for one another. The most by
which an iteration of the map delays an operation that another period waits for is a period that its starts keep; the
circuit that the causes of waiting close is a lower bound (Baccelli, Cohen, Olsder and Quadrat, *Synchronization and
linearity*, 1992, sections 3.2 and 3.7).
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.kernels.sequence import Graph

_ITERATIONS, _MOST_ITERATIONS = 8, 24
"""Iterations after which an order beyond the limit is given up, and after which a period is good enough."""


class Period(NamedTuple):
    """A cyclic schedule whose period is sought. A single number is stored as a list of length 1.

    `level, duration, start, cause, lag`: by operation; the cause is the operation that it waits for, and the lag how
    long after the start of that one. `position`: by operation: its number in the sequence. `free, user`: by GPU and
    link, the end of the last operation that uses it, and which it is. `visited, needed`: by operation: the last swap in
    which it moved, or search for a circuit that came by; the last iteration in which another period waited for it.
    `epoch`: A number that none of these is marked with yet. `circuit`: an operation on the critical circuit.
    `iterations`: how many max-plus iterations there were. `infinity, halt`: more than any time; where another thread
    makes the latter other than 0, the period is given up.
    """

    sequence: Numbers
    level: Numbers
    duration: Numbers
    start: Numbers
    cause: Numbers
    lag: Numbers
    position: Numbers
    free: Numbers
    user: Numbers
    visited: Numbers
    needed: Numbers
    epoch: Numbers
    circuit: Numbers
    iterations: Numbers
    infinity: Numbers
    halt: Numbers


def max_plus_iteration(graph: Graph, trial: Period) -> tuple[int, int]:
    """Start every operation a period later.

    The largest delay of an operation that another period waits for, and which it is; -1 where it is halted.

    `trial`: the order, with the starts of one period; receives those of the next one, and their causes.
    """
    sequence, level, duration, start, halt = trial.sequence, trial.level, trial.duration, trial.start, trial.halt
    cause, lag, position, needed = trial.cause, trial.lag, trial.position, trial.needed
    free, user = trial.free, trial.user
    job, group, first, slots, buckets = graph.job, graph.group, graph.first, graph.slots, graph.buckets
    use_at, uses, use, table_at, table = graph.use_at, graph.uses, graph.use, graph.table_at, graph.table
    begin, before_begin, epoch, before_all = graph.begin, graph.before_begin, trial.epoch[0], -trial.infinity[0]
    most, latest = before_all, -1
    for n in range(len(sequence)):
        if halt[0] != 0:
            return most, -1
        p = sequence[n]
        j, at, g = job[p], first[p], group[p]
        moment, why, wait, bucket = before_all, -1, 0, p - at - slots[j]
        if bucket < 0:
            why = at - 1 if at > begin[j] else before_begin[j]
            moment = start[why]
            if position[why] > n:
                needed[why] = epoch
        else:
            for q in range(at, at + slots[j]):
                if bucket == buckets[j]:
                    length = duration[q]
                elif level[q] > bucket:
                    length = table[table_at[group[q]] + bucket]
                else:
                    continue
                if position[q] > n:
                    needed[q] = epoch
                if start[q] + length > moment:
                    moment, why, wait = start[q] + length, q, length
            if bucket > 0:
                q = p - 1
                if position[q] > n:
                    needed[q] = epoch
                if start[q] + duration[q] > moment:
                    moment, why, wait = start[q] + duration[q], q, duration[q]
        # Operations without length may lie anywhere.
        if duration[p] > 0:
            for k in range(use_at[g], use_at[g] + uses[g]):
                r = use[k]
                q = user[r]
                # An operation that is alone on a GPU or link waits for itself, a period before.
                if position[q] >= n:
                    needed[q] = epoch
                if free[r] > moment or (free[r] == moment and job[q] != j):
                    moment, why, wait = free[r], q, duration[q]
            for k in range(use_at[g], use_at[g] + uses[g]):
                free[use[k]], user[use[k]] = moment + duration[p], p
        if needed[p] == epoch and moment - start[p] > most:
            most, latest = moment - start[p], p
        start[p], cause[p], lag[p] = moment, why, wait
    return most, latest


def critical_circuit(trial: Period, p: int) -> tuple[int, int, int]:
    """Return the circuit that causes lead to from an operation.

    Length of the circuit in microseconds, the number of periods that it spans, and an operation on it.
    """
    visited, cause, position, epoch = trial.visited, trial.cause, trial.position, trial.epoch[0]
    while visited[p] != epoch:
        visited[p] = epoch
        p = cause[p]
    length, periods, q = 0, 0, p
    while periods == 0 or q != p:
        length += trial.lag[q]
        periods += 1 if position[cause[q]] >= position[q] else 0
        q = cause[q]
    return length, periods, p


def least_period(graph: Graph, trial: Period, limit: float) -> int:
    """Return the least period in which a sequence can be repeated, or a period close to it.

    `graph, trial`: the operations, their order, levels and durations; starts are some of the period before. The starts
    and causes become those of a period, and `circuit` an operation on the critical circuit.
    """
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    sequence, start, duration = trial.sequence, trial.start, trial.duration
    for n in range(len(sequence)):
        p = sequence[n]
        trial.position[p] = n
        if duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                trial.free[use[k]], trial.user[use[k]] = start[p] + duration[p], p
    most = trial.infinity[0]
    for count in range(1, _MOST_ITERATIONS + 1):
        most, p = max_plus_iteration(graph, trial)
        trial.iterations[0] += 1
        if p < 0:
            break
        # Length over periods of any circuit is a lower bound on the period, and `most` is an upper bound.
        length, periods, trial.circuit[0] = critical_circuit(trial, p)
        trial.epoch[0] += 1
        if length > limit * periods or (count >= _ITERATIONS and most > limit):
            return trial.infinity[0]
        # The lower bound, rounded up, has met the upper one.
        if length > (most - 1) * periods:
            break
    return max(1, most)

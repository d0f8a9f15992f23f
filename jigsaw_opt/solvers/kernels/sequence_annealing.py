"""The order of pieces on GPUs and links, and who takes which level, annealed along critical paths, on flat numbers.

Python runs `anneal_sequence`, or numba has compiled it (`engines.compiled`). Most steps look at the longest path to
the end of a job. Either two pieces of different jobs on it, which follow one another without a gap on a GPU or link,
change places: these are the only exchanges of neighbours that can make that end earlier (Van Laarhoven, Aarts and
Lenstra, *Job shop scheduling by simulated annealing*, Operations Research 40, 1992). Or a block on it trades levels
with another one of its job. The other steps shift all pieces of a job to and fro.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Reals, compilable
from jigsaw_opt.solvers.kernels.sequence import Graph, State, adopt, keep, reach, resume, settle, sweep, types_for
from jigsaw_opt.solvers.kernels.sequence_moves import (
    admitted,
    beyond_cutoff,
    critical,
    deepen,
    partner,
    shifted,
    swapped,
    timed,
    traded,
)

__all__ = ["anneal_sequence"]

_TRIES = 3
"""How often a schedule is changed in vain before its longest paths are worked out, which takes as long as a sweep."""
_KINDS = 8
"""One in so many steps shifts a whole job; of the others more than half trade levels."""


def anneal_sequence(
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
        if beyond_cutoff(least, worth, left):
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


compilable(
    anneal_sequence,
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
        beyond_cutoff,
    ),
)

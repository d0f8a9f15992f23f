"""Changes of a trace and of the levels of its blocks, which keep the rules, and what they may still bring.

The annealings on a line (`sequence_annealing`) and around a circle (`cyclic_annealing`) make them.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.kernels.sequence import ACROSS, KEPT, Graph

__all__ = ["admitted", "beyond_cutoff", "critical", "deepen", "partner", "shifted", "swapped", "timed", "traded"]

_HOPE = 0.2
"""By what share of it an annealing may well pass what it has to come down to. After a change of the placement 97 of 100
that end within 1 % of the schedule before are at most 0.11 to 0.22 above it after the first sweep, 0.15 after a tenth
of the steps and 0.06 after four tenths; half of all are above that to the end."""


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


def beyond_cutoff(least: int, worth: float, left: float) -> bool:
    """Whether an annealing is not likely to come down to what it is worth in the share of its steps that is left."""
    return least > worth * (1.0 + _HOPE * left * left)

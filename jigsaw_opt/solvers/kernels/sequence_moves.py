"""Changes of an operation sequence and of the levels of its blocks that keep the rules, and what they may still bring.

The annealings on the finite horizon (`sequence_annealing`) and on the cyclic one (`cyclic_annealing`) make them.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.kernels.graph import ACROSS_ITERATIONS, FIXED, Graph, predecessors, set_durations
from jigsaw_opt.solvers.kernels.randomness import following

__all__ = [
    "beyond_cutoff",
    "critical_operation",
    "exchange_levels",
    "exchange_partner",
    "levels_to_exchange",
    "merge_job",
    "swap_critical_arc",
]

_HOPE = 0.2
"""By what share of it an annealing may well pass its cutoff. After a change of the placement 97 of 100 that end within
1 % of the schedule before are at most 0.11 to 0.22 above it after the first pass, 0.15 after a tenth of the steps and
0.06 after four tenths; half of all are above that to the end."""


def critical_operation(graph: Graph, level: Numbers, cause: Numbers, p: int, exchanges: int, seed: int) -> int:
    """Return a random operation to change on the path or circuit of causes; -1 where there is none.

    It is a block that may exchange levels, or else an operation that waits for one of another job. Reservoir sampling
    makes each of them as likely.

    `cause`: by operation: the operation that it waits for, or -1. `p`: operation to begin at: the end of the path, or
    one on the circuit. `exchanges`: 1 for a block that may exchange levels, 0 for an operation that waits for another
    job.
    """
    job, scope, found, seen, end = graph.job, graph.exchange_scope, -1, 0, p
    while True:
        q = cause[p]
        if (level[p] > 0 and scope[job[p]] != FIXED) if exchanges else (q >= 0 and job[q] != job[p]):
            seen += 1
            seed = following(seed)
            if seed % seen == 0:
                found = p
        p = q
        # A path ends with -1; a circuit ends where it began.
        if p < 0 or p == end:
            return found


def exchange_partner(graph: Graph, p: int, seed: int) -> int:
    """Return a random block that a block may exchange levels with, possibly itself.

    A block of the same iteration, or of any iteration of the job where levels may move across iterations.
    """
    j = graph.job[p]
    slots = graph.slots[j]
    q = graph.first[p] + seed % slots
    if graph.exchange_scope[j] == ACROSS_ITERATIONS:
        width = slots + graph.buckets[j] + 1
        seed = following(seed)
        q = graph.begin[j] + seed % graph.iterations[j] * width + seed // 65536 % slots
    return q


def admits_exchange(graph: Graph, level: Numbers, p: int, q: int, less: int) -> bool:
    """Return whether block p may become `less` levels shallower and block q `less` levels deeper.

    False where a level would leave its range or pass the memory, or an iteration would keep too few blocks at full
    depth.
    """
    j, cap, group = graph.job[p], graph.cap, graph.group
    low, high = level[p] - less, level[q] + less
    if low < 1 or high < 1 or low > cap[group[p]] or high > cap[group[q]]:
        return False
    # Each of the two iterations must keep enough blocks at full depth.
    for n in range(2):
        full, at = 0, graph.first[p] if n == 0 else graph.first[q]
        for b in range(at, at + graph.slots[j]):
            after = low if b == p else high if b == q else level[b]
            full += after == graph.depth[j]
        if full < graph.contributors[j]:
            return False
    return True


def levels_to_exchange(graph: Graph, level: Numbers, p: int, q: int, seed: int) -> int:
    """Return by how many levels block p may become shallower and block q deeper; 0 for none."""
    less = 1 if graph.exchange_scope[graph.job[p]] == ACROSS_ITERATIONS and seed % 2 else level[p] - level[q]
    return less if p != q and less != 0 and admits_exchange(graph, level, p, q, less) else 0


def exchange_levels(graph: Graph, level: Numbers, duration: Numbers, p: int, q: int, less: int) -> None:
    """Make block p `less` levels shallower and block q `less` levels deeper.

    `duration`: by operation, in microseconds; follows the levels.
    """
    level[p] -= less
    level[q] += less
    set_durations(graph, level, duration, graph.first[p])
    if graph.first[q] != graph.first[p]:
        set_durations(graph, level, duration, graph.first[q])


def swap_critical_arc(
    graph: Graph,
    sequence: Numbers,
    position: Numbers,
    u: int,
    v: int,
    later: int,
    after: Numbers,
    visited: Numbers,
    epoch: int,
) -> None:
    """Write the sequence in which u goes behind v, or v before u, with what has to move along.

    Those that move have `epoch`, which none has yet, in `visited`.

    `later`: 1 to move u behind v, along with its successors between them; 0 to move v before u, with its predecessors.
    `after`: receives the part of the sequence from u to v in its new order.
    """
    first, final = position[u], position[v]
    if later:
        visited[u] = epoch
        for n in range(first + 1, final):
            low, high, other = predecessors(graph, sequence[n])
            moves = other >= 0 and visited[other] == epoch
            for q in range(low, high):
                moves = moves or visited[q] == epoch
            if moves:
                visited[sequence[n]] = epoch
    else:
        visited[v] = epoch
        for n in range(final, first, -1):
            if visited[sequence[n]] == epoch:
                # On the cyclic horizon an operation may also wait for one behind it, in the period before.
                low, high, other = predecessors(graph, sequence[n])
                if other >= 0 and position[other] < n:
                    visited[other] = epoch
                for q in range(low, high):
                    if position[q] < n:
                        visited[q] = epoch
    at = first
    # Marked operations go last to move u later, and first to move v earlier; both parts keep their order.
    for side in range(2):
        for n in range(first, final + 1):
            if (visited[sequence[n]] != epoch) == (side != later):
                after[at] = sequence[n]
                at += 1


def merge_job(graph: Graph, sequence: Numbers, j: int, first: int, key: Numbers, after: Numbers) -> None:
    """Merge the operations of a job, in cyclic order from a position on, with all others, by their keys.

    `first`: position in the sequence from which the job's operations are taken, around its end. `key`: by operation;
    smaller keys come first, and others come before the job's at equal keys.
    """
    job, size = graph.job, len(sequence)
    own, left, other = first % size, size, 0
    for at in range(size):
        while left > 0 and job[sequence[own]] != j:
            own, left = own + 1 if own + 1 < size else 0, left - 1
        while other < size and job[sequence[other]] == j:
            other += 1
        p = sequence[own]
        if left > 0 and (other == size or key[p] < key[sequence[other]]):
            after[at] = p
            own, left = own + 1 if own + 1 < size else 0, left - 1
        else:
            after[at] = sequence[other]
            other += 1


def beyond_cutoff(value: int, cutoff: float, left: float) -> bool:
    """Return whether an annealing is not likely to come down to its cutoff in the share of its steps that is left."""
    return value > cutoff * (1.0 + _HOPE * left * left)

"""Annealing of an operation sequence and its levels on the finite horizon, and the changes it makes.

Most steps look at the longest path to the end of a job. Either two operations of different jobs on it, which follow one
another without a gap on a GPU or link, change places (the neighbourhood N1): these are the only exchanges of neighbours
that can make that end earlier (Van Laarhoven, Aarts and Lenstra, *Job shop scheduling by simulated annealing*,
Operations Research 40, 1992). Or a block on it exchanges levels with another one of its job. The other steps shift all
operations of a job to and fro.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.randomness import following
from jigsaw_opt.solvers.kernels.sequence import (
    ACROSS_ITERATIONS,
    FIXED,
    Graph,
    SequenceState,
    accept,
    backward_pass,
    commit,
    forward_pass,
    predecessors,
    restore_checkpoint,
    save_incumbent,
    set_durations,
)

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


_TRIES = 3
"""Number of rejected trials after which tails are computed: they cost one pass, and let later trials end earlier."""
_KINDS = 8
"""One in so many steps shifts a whole job; of the others more than half exchange levels."""


def evaluate_first(graph: Graph, state: SequenceState) -> None:
    """Evaluate the schedule that an annealing begins with, and make it the incumbent."""
    size = len(state.sequence)
    for p in range(size):
        if graph.first[p] == p:
            set_durations(graph, state.level, state.duration, p)
    restore_checkpoint(graph, state, 0)
    state.value[0], _ = forward_pass(graph, state, state.sequence, 0, size, state.start, state.cause, 1e300)
    state.best_value[0] = state.value[0]
    save_incumbent(state)


def observed_job(graph: Graph, start: Numbers, seed: int) -> int:
    """Return the job whose path is examined: the one that ends last, or a random one under weights.

    Of several that end last it is a random one, or else the first.

    `start`: by operation: its start, in microseconds.
    """
    last = graph.last
    j = seed % len(last)
    # Only what leads to the last end can make it earlier. Under weights, every end counts.
    if len(graph.weight) == 0:
        for other in range(len(last)):
            if start[last[other]] > start[last[j]]:
                j = other
    return j


def shift_job(graph: Graph, state: SequenceState, j: int, scale: int) -> int:
    """Write the next sequence, with the starts of a job scaled by `scale` / 256; return where it first differs.

    Position of the first operation that differs; the length of the sequence where none does.
    """
    job, sequence, start, after = graph.job, state.sequence, state.start, state.next_sequence
    for p in range(len(sequence)):
        # Whole numbers, so that Python and the compiled function merge alike.
        state.key[p] = start[p] * scale // 256 if job[p] == j else start[p]
    merge_job(graph, sequence, j, 0, state.key, after)
    changed = 0
    while changed < len(sequence) and after[changed] == sequence[changed]:
        changed += 1
    return changed


def propose(graph: Graph, state: SequenceState, j: int, step: int, seed: int) -> tuple[int, int, int, int, int, int]:
    """Make a random change: in the next sequence, or of levels.

    The next seed, and the numbers of the first and the last operation that change; -1 for the first where none does;
    Blocks that have exchanged levels, and by how many the first is less deep; 0 where none has.
    """
    level, position, cause = state.level, state.position, state.cause
    kind, seed = seed % _KINDS, following(seed)
    if kind == 0:
        return seed, shift_job(graph, state, j, seed % 512), len(position) - 1, 0, 0, 0
    p = critical_operation(graph, level, cause, graph.last[j], kind % 2, seed)
    if p < 0:
        return seed, -1, 0, 0, 0, 0
    seed = following(seed)
    if kind % 2 == 0:
        q = cause[p]
        swap_critical_arc(graph, state.sequence, position, q, p, seed % 2, state.next_sequence, state.visited, step)
        return seed, position[q], position[p], p, q, 0
    q = exchange_partner(graph, p, seed)
    seed = following(seed)
    less = levels_to_exchange(graph, level, p, q, seed)
    if less == 0:
        return seed, -1, 0, p, q, 0
    exchange_levels(graph, level, state.duration, p, q, less)
    barrier = graph.slots[graph.job[p]] + graph.buckets[graph.job[p]]
    final = max(position[graph.first[p] + barrier], position[graph.first[q] + barrier])
    return seed, min(position[p], position[q]), final, p, q, less


def undo(state: SequenceState, changed: int, reached: int, final: int) -> None:
    """Reset the trial schedule to the current one."""
    after, start = state.next_sequence, state.start
    for n in range(changed, reached):
        state.next_start[after[n]] = start[after[n]]
    for n in range(changed, final + 1):
        after[n] = state.sequence[n]


@kernel
def anneal_sequence(
    graph: Graph,
    state: SequenceState,
    first: int,
    steps: int,
    total: int,
    hot: float,
    cutoff: float,
    exponentials: Reals,
) -> int:
    """Take some steps of an annealing.

    `state`: sequence, levels and the state of the random numbers are given; all of it changes. `first, steps, total`:
    number of the first step, how many to take now, and how many there are in all. `hot`: temperature in step 0, as a
    share of the objective; it falls to 0 with the square of the steps that are left. `cutoff`: objective that the
    schedule has to reach to be of use; the steps end where that is out of reach.
    """
    size, weighted = len(state.sequence), len(graph.weight) > 0
    for p in range(size):
        # Steps are the marks in `visited`, and no step has this number.
        state.visited[p], state.position[p] = -1, size
    if first == 0:
        evaluate_first(graph, state)
    commit(graph, state, 0)
    value, seed, tries, taken = state.value[0], state.rng[0], 0, 0
    for step in range(first, first + steps):
        left = 1.0 - step / total
        if beyond_cutoff(state.best_value[0], cutoff, left):
            break
        taken += 1
        seed = following(seed)
        j = observed_job(graph, state.start, seed)
        seed, changed, final, p, q, less = propose(graph, state, j, step, following(seed))
        if changed < 0:
            continue
        seed = following(seed)
        # The Metropolis rule, drawn beforehand, so that the pass may end at the limit.
        limit = value * (1.0 + hot * left * left * exponentials[seed % len(exponentials)])
        restore_checkpoint(graph, state, changed)
        # Tails are those of the current schedule only once `backward_pass` has run on it.
        known = final if tries >= _TRIES else size
        objective, reached = forward_pass(
            graph, state, state.next_sequence, changed, known, state.next_start, state.next_cause, limit
        )
        if objective > limit:
            if less != 0:
                exchange_levels(graph, state.level, state.duration, q, p, less)
            undo(state, changed, reached, final)
            tries += 1
            if tries == _TRIES and not weighted:
                backward_pass(graph, state)
            continue
        value, tries = objective, 0
        commit(graph, state, accept(state, changed))
        if value < state.best_value[0]:
            state.best_value[0] = value
            save_incumbent(state)
    state.value[0], state.rng[0], state.steps[0] = value, seed, taken
    state.visits[0] = (taken + 1 if first == 0 else taken) * size
    return state.best_value[0]

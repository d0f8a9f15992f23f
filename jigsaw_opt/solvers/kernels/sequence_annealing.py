"""Annealing of an operation sequence and of who takes which level on the finite horizon, on flat numbers.

Most steps look at the longest path to the end of a job. Either two operations of different jobs on it, which follow one
another without a gap on a GPU or link, change places (the neighbourhood N1): these are the only exchanges of neighbours
that can make that end earlier (Van Laarhoven, Aarts and Lenstra, *Job shop scheduling by simulated annealing*,
Operations Research 40, 1992). Or a block on it exchanges levels with another one of its job. The other steps shift all
operations of a job to and fro.
"""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel
from jigsaw_opt.solvers.kernels.graph import Graph, set_durations
from jigsaw_opt.solvers.kernels.randomness import following
from jigsaw_opt.solvers.kernels.sequence import (
    SequenceState,
    accept,
    backward_pass,
    commit,
    forward_pass,
    restore_checkpoint,
    save_incumbent,
)
from jigsaw_opt.solvers.kernels.sequence_moves import (
    beyond_cutoff,
    critical_operation,
    exchange_levels,
    exchange_partner,
    levels_to_exchange,
    merge_job,
    swap_critical_arc,
)

__all__ = ["anneal_sequence"]

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

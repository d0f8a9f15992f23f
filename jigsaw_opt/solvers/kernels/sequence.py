"""Operations of placed jobs, and sequences of them on the finite horizon, on flat numbers.

A sequence lists all operations so that each stands behind what it waits for; each starts as early as the operations
before it let it.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

FIXED, WITHIN_ITERATION, ACROSS_ITERATIONS = 0, 1, 2


class Graph(NamedTuple):
    """Blocks, transfers and barriers, in *groups* that use the same GPU or links, as those of a slot do.

    The operations of a job are numbered in a row, iteration by iteration: the blocks by slot, the transfers by bucket,
    and the barrier. A block waits for the barrier before it. A transfer waits for its bucket at all blocks that are
    deep enough, and for the transfer before it; the barrier waits for all blocks and the last transfer.

    `first`: by operation: the first operation of its iteration. `use_at, uses, use`: by group: it has
    ``use[use_at[g]:use_at[g] + uses[g]]`` to itself. `cap, table_at, table`: by group, for blocks: the deepest level
    that memory admits; one takes ``table[table_at[g] + level - 1]``. `slots, buckets, iterations, depth, contributors`:
    by job: numbers of slots, transfers, iterations and levels, and how many slots have to be at the last level.
    `exchange_scope`: by job: `FIXED` where levels stay as they are, `WITHIN_ITERATION` where blocks of an iteration may
    exchange them, and `ACROSS_ITERATIONS` where their sum over all iterations is what counts. `exchange_at, exchange`:
    by job: transfer b with c contributors takes ``exchange[exchange_at[j] + b * slots[j] + c - 1]``. `release, begin,
    last`: by job: no operation starts earlier; its first operation, and the one that is its end. `before_begin`: by
    job: the operation that its first blocks wait for, in the period before; -1 on the finite horizon. `weight`: by job:
    what a microsecond of its end costs; nothing at all where the makespan counts.
    """

    job: Numbers
    group: Numbers
    first: Numbers
    use_at: Numbers
    uses: Numbers
    use: Numbers
    cap: Numbers
    table_at: Numbers
    table: Numbers
    slots: Numbers
    buckets: Numbers
    iterations: Numbers
    depth: Numbers
    contributors: Numbers
    exchange_scope: Numbers
    exchange_at: Numbers
    exchange: Numbers
    release: Numbers
    begin: Numbers
    last: Numbers
    before_begin: Numbers
    weight: Numbers


def predecessors(graph: Graph, p: int) -> tuple[int, int, int]:
    """Return the operations that an operation waits for, whatever its levels.

    The first of consecutive operations and the number after their last; and one more operation, or -1.
    """
    j, at = graph.job[p], graph.first[p]
    offset = p - at - graph.slots[j]
    # Blocks have negative offsets, transfers follow from 0 on, and the barrier is behind the last of them.
    if offset >= 0:
        return at, at + graph.slots[j], p - 1 if offset > 0 else -1
    return at, at, at - 1 if at > graph.begin[j] else graph.before_begin[j]


def set_durations(graph: Graph, level: Numbers, duration: Numbers, at: int) -> None:
    """Set the durations of the blocks and transfers of an iteration from the levels of its blocks.

    `level`: by operation: levels, from 1 on for blocks. `duration`: by operation, in microseconds; receives those of
    the iteration. The barrier keeps its own, which is 0.
    """
    j = graph.job[at]
    slots, buckets = graph.slots[j], graph.buckets[j]
    for p in range(at, at + slots):
        duration[p] = graph.table[graph.table_at[graph.group[p]] + level[p] - 1]
    for b in range(buckets):
        count = 0
        for p in range(at, at + slots):
            count += level[p] > b
        # Each bucket has a contributor at least: the depth rule sees to that.
        duration[at + slots + b] = graph.exchange[graph.exchange_at[j] + b * slots + count - 1]


class SequenceState(NamedTuple):
    """A schedule, another one that is tried, and the incumbent. A single number is stored as a list of length 1.

    `level, duration, start, cause`: by operation; levels of transfers and barriers are 0, and the cause is the
    operation that it waits for, -1 for none. `next_sequence, next_start, next_cause`: another schedule that is tried;
    between two steps, sequence and starts of the current one. `best_value, value`: objective of the incumbent, and of
    the current schedule. `rng, steps, visits`: the state of the random numbers, how many steps were taken, and how many
    operations they visited at most. `position, tail`: by operation: its number in the sequence, and where the makespan
    counts, the longest path from its start to the end. `free, user`: by GPU and link, the end of the last operation
    that uses it, and which it is; buffers of a pass. `stride, checkpoint_free, checkpoint_user`: A checkpoint stands in
    the sequence wherever so many operations have passed: `free` and `user` there, one row after the other. A forward
    pass begins at the last checkpoint before what changes. `visited, key`: by operation, the last swap in which it
    moved; and a buffer.
    """

    sequence: Numbers
    level: Numbers
    duration: Numbers
    start: Numbers
    cause: Numbers
    next_sequence: Numbers
    next_start: Numbers
    next_cause: Numbers
    best_sequence: Numbers
    best_level: Numbers
    best_start: Numbers
    best_value: Numbers
    value: Numbers
    rng: Numbers
    steps: Numbers
    visits: Numbers
    position: Numbers
    tail: Numbers
    free: Numbers
    user: Numbers
    stride: Numbers
    checkpoint_free: Numbers
    checkpoint_user: Numbers
    visited: Numbers
    key: Numbers


def forward_pass(
    graph: Graph,
    state: SequenceState,
    sequence: Numbers,
    first: int,
    final: int,
    start: Numbers,
    cause: Numbers,
    limit: float,
) -> tuple[int, int]:
    """Start every operation from one on as early as may be in the order of a sequence.

    The objective, or as soon as it must pass the limit, something between the limit and it; and the number of the first
    operation that was not reached.

    `first, final`: numbers of the first operation and the last one that differ from those of the state, in place or in
    length.
    """
    level, duration, free, user, tail = state.level, state.duration, state.free, state.user, state.tail
    job, group, first_operation, slots, buckets = graph.job, graph.group, graph.first, graph.slots, graph.buckets
    use_at, uses, use, table_at, table = graph.use_at, graph.uses, graph.use, graph.table_at, graph.table
    release, begin, last, weight = graph.release, graph.begin, graph.last, graph.weight
    weighted = len(weight) > 0
    value = value_before(graph, state, first, start)
    for n in range(first, len(sequence)):
        p = sequence[n]
        j, at, g = job[p], first_operation[p], group[p]
        moment, why, bucket = release[j], -1, p - at - slots[j]
        if bucket < 0:
            if at > begin[j] and start[at - 1] > moment:
                moment, why = start[at - 1], at - 1
        else:
            for q in range(at, at + slots[j]):
                if bucket == buckets[j]:
                    after = start[q] + duration[q]
                elif level[q] > bucket:
                    after = start[q] + table[table_at[group[q]] + bucket]
                else:
                    continue
                if after > moment:
                    moment, why = after, q
            if bucket > 0 and start[p - 1] + duration[p - 1] > moment:
                moment, why = start[p - 1] + duration[p - 1], p - 1
        # Operations without length may lie anywhere.
        if duration[p] > 0:
            for k in range(use_at[g], use_at[g] + uses[g]):
                r = use[k]
                # Ties go to the user of the GPU or link, for only such a cause can be changed by a swap.
                if free[r] >= moment and user[r] >= 0:
                    moment, why = free[r], user[r]
            for k in range(use_at[g], use_at[g] + uses[g]):
                free[use[k]], user[use[k]] = moment + duration[p], p
        start[p], cause[p] = moment, why
        if weighted:
            if p == last[j]:
                value += weight[j] * moment
        else:
            # What comes behind the last change keeps its order and lengths, so its longest path is as it was.
            value = max(value, moment + tail[p] if n > final else moment)
        if value > limit:
            return value, n + 1
    return value, len(sequence)


def value_before(graph: Graph, state: SequenceState, first: int, start: Numbers) -> int:
    """Return the objective of the jobs that end before an operation of the sequence.

    Weighted sum of their ends, or without weights the latest of them, in microseconds.

    `start`: by operation: its start, in microseconds.
    """
    last, weight, value = graph.last, graph.weight, 0
    for j in range(len(last)):
        if state.position[last[j]] < first:
            end = start[last[j]]
            value = value + weight[j] * end if len(weight) > 0 else max(value, end)
    return value


def advance(graph: Graph, state: SequenceState, first: int, final: int) -> None:
    """Mark GPUs and links as used by some operations of the current schedule.

    `first, final`: position in the sequence of the first operation, and the position after the last one.
    """
    group, use_at, uses, use = graph.group, graph.use_at, graph.uses, graph.use
    sequence, start, duration, free, user = state.sequence, state.start, state.duration, state.free, state.user
    for n in range(first, final):
        p = sequence[n]
        if duration[p] > 0:
            for k in range(use_at[group[p]], use_at[group[p]] + uses[group[p]]):
                free[use[k]], user[use[k]] = start[p] + duration[p], p


def restore_checkpoint(graph: Graph, state: SequenceState, first: int) -> None:
    """Compute when GPUs and links become free after the operations before a position of the sequence.

    The pass begins at the last checkpoint before that position, so that it visits fewer than `stride` operations.
    """
    free, user, count, stride = state.free, state.user, len(state.free), state.stride[0]
    row = first // stride
    for r in range(count):
        # Row 0 is the beginning, when nothing is in use.
        free[r] = state.checkpoint_free[row * count + r] if row else 0
        user[r] = state.checkpoint_user[row * count + r] if row else -1
    advance(graph, state, row * stride, first)


def commit(graph: Graph, state: SequenceState, first: int) -> None:
    """Update positions, checkpoints and the trial buffers after the current schedule has changed."""
    sequence, start, position = state.sequence, state.start, state.position
    size, count, stride = len(sequence), len(state.free), state.stride[0]
    for n in range(first, size):
        p = sequence[n]
        state.next_sequence[n], state.next_start[p], position[p] = p, start[p], n
    restore_checkpoint(graph, state, first)
    while first < size:
        row = first // stride
        if first % stride == 0:
            for r in range(count):
                at = row * count + r
                state.checkpoint_free[at], state.checkpoint_user[at] = state.free[r], state.user[r]
        advance(graph, state, first, min(size, (row + 1) * stride))
        first = (row + 1) * stride


def accept(state: SequenceState, first: int) -> int:
    """Make the trial schedule the current one, in the order of its starts.

    Position of the first operation that differs from the former sequence.

    `state`: the current schedule and the trial; sequence, starts and causes of the former change.
    """
    sequence, start, moved = state.sequence, state.start, first
    # In the order of starts, with what starts together as it was: so few operations lie between two neighbours.
    for n in range(first, len(sequence)):
        p, k = state.next_sequence[n], n
        start[p], state.cause[p] = state.next_start[p], state.next_cause[p]
        while k > 0 and start[sequence[k - 1]] > start[p]:
            sequence[k] = sequence[k - 1]
            k -= 1
        sequence[k] = p
        moved = min(moved, k)
    return moved


def save_incumbent(state: SequenceState) -> None:
    """Copy the current schedule to the incumbent."""
    for n in range(len(state.sequence)):
        state.best_sequence[n], state.best_start[n] = state.sequence[n], state.start[n]
        state.best_level[n] = state.level[n]


def backward_pass(graph: Graph, state: SequenceState) -> None:
    """Compute the tail of every operation: the longest path from its start to the end of the schedule."""
    job, group, first_operation, slots, buckets = graph.job, graph.group, graph.first, graph.slots, graph.buckets
    use_at, uses, use, table_at, table = graph.use_at, graph.uses, graph.use, graph.table_at, graph.table
    begin, sequence = graph.begin, state.sequence
    duration, level, tail, user = state.duration, state.level, state.tail, state.user
    for p in range(len(sequence)):
        tail[p] = 0
    for r in range(len(user)):
        user[r] = -1
    # In reverse order the tails of all successors are complete: `user` has those on the same GPU or link, and those of
    # the job have pushed theirs to this operation.
    for n in range(len(sequence) - 1, -1, -1):
        p = sequence[n]
        j, at, g, most = job[p], first_operation[p], group[p], tail[p]
        if duration[p] > 0:
            for k in range(use_at[g], use_at[g] + uses[g]):
                q = user[use[k]]
                if q >= 0:
                    most = max(most, duration[p] + tail[q])
                user[use[k]] = p
        tail[p], bucket = most, p - at - slots[j]
        if bucket < 0:
            if at > begin[j]:
                tail[at - 1] = max(tail[at - 1], most)
            continue
        for q in range(at, at + slots[j]):
            if bucket == buckets[j]:
                tail[q] = max(tail[q], duration[q] + most)
            elif level[q] > bucket:
                tail[q] = max(tail[q], table[table_at[group[q]] + bucket] + most)
        if bucket > 0:
            tail[p - 1] = max(tail[p - 1], duration[p - 1] + most)

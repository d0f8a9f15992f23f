"""The operations of placed jobs on flat numbers: what they use, how long they take, and what they wait for."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers

__all__ = ["ACROSS_ITERATIONS", "FIXED", "WITHIN_ITERATION", "Graph", "predecessors", "set_durations"]

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

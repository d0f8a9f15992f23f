"""Spans of slots between barriers on the cyclic horizon (jobs with a task graph).

Where a barrier keeps the blocks of a slot, or the whole job, within a part of the period of their own, that part is no
shorter than the time from the first of them to the last one. A block starts no earlier than the longest chain that
leads to it from one of them, and as much later as the longest chain from it to one of them the part ends. Blocks of a
slot follow one another, so those of at least some head and at least some tail take their sum besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.activities.head_and_tail import best_head_and_tail
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData

_MOST_STEPS = 400_000
"""Largest number of edges that are visited, summed over slots: some tenths of a second."""


def flushes_of(data: TaskGraphData) -> Iterator[tuple[int, int, int, int]]:
    """Yield a bound on the period for each slot of a job that has a barrier, as far as the limit of steps goes.

    With the slot, and the head and the tail of an iteration.
    """
    graph, least_us = data.graph, data.least_us
    # Of one iteration: an edge with a lag leads to a later one, which lies beyond the barrier.
    before, after = data.waits(1, forward=True), data.waits(1, forward=False)
    whole, steps = graph.shape.barrier == "job", 0
    for slot, blocks in enumerate(checking_deadline(graph.blocks_of)):
        members = range(graph.size) if whole else blocks
        steps += len(graph.edges)
        if steps > _MOST_STEPS:
            return
        heads, tails = _longest(before, members, least_us), _longest(after, members, least_us)
        # Each iteration of the period has such a part of its own, and the parts of a slot follow one another.
        span, head, tail = best_head_and_tail([(heads[b], least_us[b], tails[b]) for b in blocks])
        yield graph.job.iterations * span, slot, head, tail


def _longest(before: Mapping[int, Sequence[int]], members: Sequence[int], least_us: Sequence[int]) -> dict[int, int]:
    """Return, by operation, the longest chain before it that begins with a member.

    The operations are in a topological order. The value of a member is at least 0; that of another operation which no
    member leads to is negative.
    """
    inside, passed = set(members), dict[int, int]()
    # No chain is longer than the sum of all durations, so that a chain without a member stays negative however it goes
    # on.
    none = -sum(least_us) - 1
    for operation, waits_for in before.items():
        chains = (passed[previous] + least_us[previous] for previous in waits_for)
        passed[operation] = max(chains, default=none)
        if operation in inside:
            passed[operation] = max(0, passed[operation])
    return passed

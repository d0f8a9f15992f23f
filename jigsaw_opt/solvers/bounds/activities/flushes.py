"""Spans of slots between barriers on the cyclic horizon (jobs with a task graph).

Where a barrier keeps the blocks of a slot, or the whole job, within a part of the period of their own, that part is no
shorter than the time from the first of them to the last one. A block starts no earlier than the longest chain that
leads to it from one of them, and as much later as the longest chain from it to one of them the part ends. Blocks of a
slot follow one another, so those of at least some head and at least some tail take their sum besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.solvers.bounds.activities.head_and_tail import best_head_and_tail

_MOST_STEPS = 400_000
"""Largest number of edges that are visited, summed over slots: some tenths of a second."""


def flushes_of(graph: CompiledTaskGraph, least_us: Sequence[int]) -> Iterator[int]:
    """Yield a bound on the period for each slot of a job that has a barrier, as far as the limit of steps goes."""
    before, after = _neighbours(graph)
    down = list(TopologicalSorter(before).static_order())
    whole, steps = graph.shape.barrier == "job", 0
    for blocks in checking_deadline(graph.blocks_of):
        members = range(graph.size) if whole else blocks
        steps += len(graph.edges)
        if steps > _MOST_STEPS:
            return
        heads, tails = _longest(down, before, members, least_us), _longest(down[::-1], after, members, least_us)
        # Each iteration of the period has such a part of its own, and the parts of a slot follow one another.
        yield graph.job.iterations * best_head_and_tail([(heads[b], least_us[b], tails[b]) for b in blocks])[0]


def _neighbours(graph: CompiledTaskGraph) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return, by operation, those of its iteration that it waits for, and those that wait for it."""
    before: dict[int, list[int]] = {operation: [] for operation in range(graph.size)}
    after: dict[int, list[int]] = {operation: [] for operation in range(graph.size)}
    for one, other, lag in graph.edges:
        # An edge with a lag leads to a later iteration, which lies beyond the barrier.
        if lag == 0:
            before[other].append(one)
            after[one].append(other)
    return before, after


def _longest(
    order: Sequence[int], before: Mapping[int, Sequence[int]], members: Sequence[int], least_us: Sequence[int]
) -> dict[int, int]:
    """Return, by operation, the longest chain before it that begins with a member.

    The value of a member is at least 0; that of another operation which no member leads to is negative.
    """
    inside, passed = set(members), dict[int, int]()
    # No chain is longer than the sum of all durations, so that a chain without a member stays negative however it goes
    # on.
    none = -sum(least_us) - 1
    for operation in order:
        chains = (passed[previous] + least_us[previous] for previous in before[operation])
        passed[operation] = max(chains, default=none)
        if operation in inside:
            passed[operation] = max(0, passed[operation])
    return passed

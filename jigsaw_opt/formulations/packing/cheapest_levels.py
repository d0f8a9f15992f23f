"""The levels of a free depth rule that keep GPUs busy least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import ceil_div


def cheapest_levels(job: OperationGraph, cost: Sequence[int]) -> tuple[int, ...] | None:
    """Return the levels of the slots, ascending, of least total cost that a free rule allows in every iteration alike.

    As many slots as the rule asks for are at the last level. The levels of the others add up to the rest of the
    least total of an iteration, rounded up; which levels these are is a knapsack problem, solved exactly.

    None where no levels add up to the least total.

    `cost`: cost of a block by level (index ``level - 1``), which never falls.
    """
    covering = job.rule.min_contributors
    others = job.slots - covering
    # What the other slots must add to those at the last level, which cover every bucket.
    missing = ceil_div(job.rule.min_total, job.iterations) - covering * job.levels
    if missing > others * job.levels:
        return None
    # best[total] = least cost of the slots so far whose levels add up to `total`, or to `missing` and more.
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ()), *[None] * max(0, missing)]
    for _ in range(others):
        following: list[tuple[int, tuple[int, ...]] | None] = [None] * len(best)
        for total, found in enumerate(best):
            if found is None:
                continue
            for level in range(1, job.levels + 1):
                reached = min(total + level, len(best) - 1)
                value = (found[0] + cost[level - 1], (*found[1], level))
                following[reached] = min(value, following[reached] or value)
        best = following
    last = best[-1]
    return None if last is None else tuple(sorted((*last[1], *[job.levels] * covering)))


def with_cheapest_levels(job: OperationGraph, gpu_type: str) -> OperationGraph:
    """Fix the levels of a job with a free rule without balance and progress to those that keep GPUs busy least.

    The job with these levels in every iteration; the job as it is under another rule.
    """
    if job.rule.multiset is not None or job.rule.balance is not None or job.rule.progress is not None:
        return job
    levels = cheapest_levels(job, job.blocks[0].duration_us[gpu_type])
    return job if levels is None else replace(job, rule=replace(job.rule, multiset=levels))

"""Two jobs that are too wide not to share a GPU: orders of their blocks on it (docs/proofs.md: pair)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.kinds.row_sum import RowSum
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError

_MOST_ORDERS = 2500
"""Largest product of both numbers of iterations."""


class _SharedGpu(NamedTuple):
    """Where two jobs are: the least ends of their last iterations, and when the GPU is free."""

    one: int
    other: int
    free: int


def pair(step: ProofStep, facts: Facts) -> RowSum:
    """Return the sum of rows about the completion times of two jobs that share a GPU."""
    names = step.texts("jobs")
    step.require(len(names) == 2, "are not two jobs", "jobs")
    one, other = (facts.job(step, name, "jobs") for name in names)
    gpus = {**one.shared.gpus, **other.shared.gpus}
    wide = one.shared.workers + other.shared.workers > sum(gpus.values())
    placed = all(job.shared.blocks and job.job.restart_us is None for job in (one, other))
    step.require(wide and placed, "need not share a GPU", "jobs")
    step.require(one.iterations * other.iterations <= _MOST_ORDERS, "have too many iterations", "jobs")
    if names not in facts.ends_of_pairs:
        facts.ends_of_pairs[names] = _completions(one, other)
    ends = facts.ends_of_pairs[names]
    step.require(bool(step.value("rows")), "is empty", "rows")
    factors, total = Counter[str](), 0
    for (first, second, least, multiplier), path in step.fours("rows", "two factors, a least sum and a multiplier"):
        if min(first * x + second * y for x, y in ends) < least:
            raise ProofStepError(path, "is more than the least sum")
        factors.update({names[0]: multiplier * first, names[1]: multiplier * second})
        total += multiplier * least
    return RowSum(factors, Fraction(total))


def _completions(one: JobFacts, other: JobFacts) -> list[tuple[int, int]]:
    """Return the completion times of both jobs in all orders of their blocks that no other order dominates."""
    row: list[list[_SharedGpu]] = []
    for i in range(one.iterations + 1):
        before, row = row, []
        for k in range(other.iterations + 1):
            states = [_SharedGpu(one.release, other.release, 0)] if i == k == 0 else []
            if i:
                for state in before[k]:
                    end, free = _iterated(one, state.one, state.free)
                    states.append(_SharedGpu(end, state.other, free))
            if k:
                for state in row[k - 1]:
                    end, free = _iterated(other, state.other, state.free)
                    states.append(_SharedGpu(state.one, end, free))
            row.append(_undominated(states))
    return [(state.one, state.other) for state in row[-1]]


def _iterated(job: JobFacts, begin: int, free: int) -> tuple[int, int]:
    """Return the least end of one more iteration, and when its block leaves the GPU."""
    shared, level = job.shared, job.shared.least_levels[0]
    block = shared.shortest_blocks[level - 1]
    end = max(begin, free if block else 0) + block
    return max(end + shared.tails[level - 1], begin + shared.iteration), end if block else free


def _undominated(states: Iterable[_SharedGpu]) -> list[_SharedGpu]:
    found: list[_SharedGpu] = []
    for state in sorted(set(states)):
        if not any(best.other <= state.other and best.free <= state.free for best in found):
            found.append(state)
    return found

"""Refuting one objective after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from jigsaw_opt.solvers.bounds.budget import Budget

__all__ = ["DestructiveTest", "destructive_bound"]

_FINENESS = 2**13
"""Objectives closer than one part in so many are not told apart."""
_FIRST_STEP = 2**8
"""The second objective tried is higher than the bound by one part in so many, and then by twice as much each time."""


class DestructiveTest(Protocol):
    """A relaxation: within an objective, it allows all that some plan of at most that objective does."""

    reason: str

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether it is proven that no plan has an objective of at most `limit`."""


def destructive_bound(test: DestructiveTest, bound: int, most: int, budget: Budget) -> Iterator[int]:
    """Rising lower bounds on the objective that a relaxation proves, beginning above `bound`.

    What a relaxation refutes, it refutes for all shorter objectives. The bound itself is tried first, for
    mostly it is left open; then objectives by growing steps upward, then by bisection. From `most` on, an objective
    that some plan reaches if there is any, nothing is tried: where there is no plan, there would be no end.
    """
    low, step, high = bound, max(1, bound // _FIRST_STEP), None
    limit = bound
    while low < most and not budget.spent:
        if test.refutes(limit, budget):
            low = limit + 1
            yield low
        elif limit == bound:
            return
        else:
            high = limit
        if high is not None and high - low <= low // _FINENESS:
            return
        limit = min(low + step, most - 1) if high is None else (low + high) // 2
        step *= 2

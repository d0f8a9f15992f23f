"""Destructive bounds: an objective that a relaxation refutes is no plan's, and one more is a bound.

The relaxation allows, within an objective, all that some plan of at most that objective does (Klein and Scholl,
"Computing lower bounds by destructive improvement", 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.solvers.bounds.proof import Proof
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext

_FINENESS = 2**13
"""The bisection ends once its interval is at most one over this of the bound: no gap shows a closer one."""
_FIRST_STEP = 2**8
"""The second objective tried is higher than the bound by one part in so many, and then by twice as much each time."""


class DestructiveTest(Protocol):
    """A relaxation of what a plan within an objective must do."""

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open.

        Parameters
        ----------
        limit
            The objective that is tried.
        budget
            Charged for the work of the test.
        """


def destructive(
    tests: Callable[[BoundContext], Iterable[DestructiveTest]],
) -> Callable[[BoundContext, int, BoundBudget], Iterator[Bound]]:
    """Return the bounds of a relaxation that consists of tests, as a function of context, known value and budget."""

    def bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
        if budget.spent:
            return
        most = serial_limit(context.operations)
        for test in tests(context):
            for bound in destructive_bounds(test, known, most, budget):
                known = bound.value
                yield bound

    return bounds


def destructive_bounds(test: DestructiveTest, known: int, most: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield rising bounds that a test proves, beginning above a known one.

    What a test refutes, it refutes for all smaller objectives. The known bound is tried first, for mostly it is left
    open; then objectives by growing steps upward, then by bisection. From `most` on, an objective that some plan
    reaches if there is any, nothing is tried: where there is no plan, there would be no end.
    """
    low, step, high = known, max(1, known // _FIRST_STEP), None
    limit = known
    while low < most and not budget.spent:
        proof = test.refutes(limit, budget)
        if proof is not None:
            low = limit + 1
            yield Bound(low, proof)
        elif limit == known:
            return
        else:
            high = limit
        # Every objective below `low` is refuted, and `high` is open.
        if high is not None and high - low <= low // _FINENESS:
            return
        limit = min(low + step, most - 1) if high is None else (low + high) // 2
        step *= 2

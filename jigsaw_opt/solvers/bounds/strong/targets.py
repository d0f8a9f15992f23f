"""Refuting one objective after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.bounds.strong.patterns import Packing, refutation, refutes

__all__ = ["Question", "refuted"]

_FINENESS = 2**13
"""Objectives closer than one part in so many are not told apart."""
_FIRST_STEP = 64
"""The first objective tried is higher than the bound by one part in so many."""


class Question(Protocol):
    """A relaxation in which, within an objective, bins must hold something."""

    reason: str

    def at(self, limit: int) -> Packing | None:
        """What must fit where, in any plan of an objective of at most `limit`; None where none can exist."""


def refuted(question: Question, bound: int, budget: Budget) -> Iterator[int]:
    """Rising lower bounds on the objective that a relaxation proves, beginning above `bound`.

    A relaxation within a limit allows all plans of shorter objectives, so what it refutes, it refutes for all
    below: first by growing steps upward, then by bisection.
    """
    prices: tuple[int, ...] = ()
    low, step, high = bound, max(1, bound // _FIRST_STEP), None
    while not budget.spent and (high is None or high - low > max(0, low // _FINENESS)):
        # The least objective still open comes first: mostly it already fits.
        limit = low if low == bound else low + step if high is None else (low + high) // 2
        packing = question.at(limit)
        found = packing if packing is None else _refuted(packing, prices, budget)
        if found is None and packing is not None:
            high = limit
            if limit == bound:
                return
        else:
            prices = found if isinstance(found, tuple) else prices
            low, step = limit + 1, 2 * step
            yield low


def _refuted(packing: Packing, prices: Sequence[int], budget: Budget) -> tuple[int, ...] | None:
    """Prices that refute, those of the last question if they do."""
    for known in (prices, packing.sizes()):
        if len(known) == len(packing.demands):
            budget.pay(packing.seconds)
            if refutes(packing, known):
                return tuple(known)
    return refutation(packing, packing.sizes(), budget)

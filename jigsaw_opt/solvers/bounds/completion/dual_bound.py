"""What proves a bound on the weighted sum of ends: the cost of each job's end, and how late it may be within a limit.

With multipliers for all that is known of the ends, their weighted sum is at least a constant and, for each job, a cost
that depends on its end alone. The cheapest ends prove a bound. In a plan within a limit, one job costs no more than
its cheapest end and what the limit leaves above the bound; that is how late it may end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.problem.costs import ceil_div

if TYPE_CHECKING:
    from jigsaw_opt.solvers.bounds.completion.work_functions import Floats, Profile

__all__ = ["UNIT", "CompletionCost", "DualBound", "DualTerm"]

UNIT = 2**160
"""Multipliers are rounded down to parts of one over this, and costs are counted in such parts."""
_FILTER = 1e-9
"""Share of the sum of all terms by which floating point may be wrong about a cost."""


class DualTerm(NamedTuple):
    """What a job pays for its work in a window of time: ``share * max(0, inside - late(e - end))`` if it ends at ``e``.

    Parameters
    ----------
    end
        End of the window, in microseconds.
    inside
        Work that is not done before the window.
    share
        Price of a unit of work, in parts of one over `UNIT`.
    late
        Most work in the last moments of the job.
    """

    end: int
    inside: int
    share: int
    late: Profile


class CompletionCost:
    """Cost of a job's end: a price for each microsecond, and terms. Between corners it is linear.

    Parameters
    ----------
    own
        The job ends no earlier, in microseconds.
    price
        What is left of its weight, in parts of one over `UNIT`; at least 0.
    terms
        For the windows that its work may lie in.
    """

    def __init__(self, own: int, price: int, terms: Sequence[DualTerm] = ()) -> None:
        self._price, self._dual_terms = price, terms
        # A window meets a corner of the job's profile, or its work inside begins or stops to count.
        corners = {term.end + length for term in terms for length in term.late.corners(term.inside)}
        self._corners = sorted({own, *(end for end in corners if end > own)})

    def at(self, end: int) -> int:
        """Cost of an end, in parts of one over `UNIT`."""
        return self._price * end + sum(
            term.share * max(0, term.inside - term.late.at(end - term.end)) for term in self._dual_terms
        )

    def cheapest(self) -> tuple[int, int]:
        """Least cost, and the first end that has it. Floating point picks some ends, integers decide."""
        low, high = self._near()
        least = float(high.min())
        return min((self.at(end), end) for end, value in zip(self._corners, low, strict=True) if value <= least)

    def latest(self, most: int) -> int | None:
        """Last end that costs at most `most`; the job's own where none does, None where there is no last one."""
        low, _ = self._near()
        for k in range(len(self._corners) - 1, -1, -1):
            corner = self._corners[k]
            if low[k] <= most / UNIT and (left := most - self.at(corner)) >= 0:
                if k + 1 < len(self._corners):
                    after = self._corners[k + 1]
                    return corner + left * (after - corner) // (self.at(after) - self.at(corner))
                return corner + left // self._price if self._price else None
        return self._corners[0]

    def _near(self) -> tuple[Floats, Floats]:
        """At least and at most how much the ends at the corners cost, in floating point."""
        import numpy as np

        ends = np.array(self._corners, dtype=float)
        value = self._price / UNIT * ends
        size = value.copy()
        for term in self._dual_terms:
            value = value + term.share / UNIT * np.maximum(0, term.inside - term.late.near(ends - term.end))
            size = size + term.share / UNIT * term.inside
        return value - _FILTER * size, value + _FILTER * size


class DualBound:
    """A bound on the weighted sum of ends, in exact integers.

    Parameters
    ----------
    constant
        What comes on top of all costs, in parts of one over `UNIT`.
    costs
        Cost of each job's end.
    """

    def __init__(self, constant: int, costs: Sequence[CompletionCost]) -> None:
        self._costs = costs
        self._cheapest = [cost.cheapest() for cost in costs]
        self._total = constant + sum(value for value, _ in self._cheapest)

    @property
    def bound(self) -> int:
        """Least weighted sum of ends."""
        return ceil_div(self._total, UNIT)

    @property
    def ends(self) -> list[int]:
        """The cheapest end of each job, in microseconds."""
        return [end for _, end in self._cheapest]

    def deadlines(self, limit: int) -> dict[int, int]:
        """Latest ends, in microseconds by job, in plans whose weighted sum of ends is at most `limit`."""
        slack = limit * UNIT - self._total
        pairs = enumerate(zip(self._costs, self._cheapest, strict=True))
        latest = ((job, cost.latest(value + slack)) for job, (cost, (value, _)) in pairs)
        return {job: end for job, end in latest if end is not None}

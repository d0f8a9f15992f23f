"""What dual multipliers prove of the weighted sum of completion times, and of the completion time of each job.

With multipliers for all that is known of completion times, their weighted sum is at least a constant and, for each job,
a cost that depends on its completion time alone. The cheapest ones prove a bound (Lagrangian relaxation; Fisher, 1981).
In a plan within a limit, one job costs no more than its cheapest completion time and what the limit leaves above the
bound; that is its deadline (fixing by reduced costs).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.arguments import completion_argument
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added

if TYPE_CHECKING:
    from jigsaw_opt.solvers.bounds.completion.work_functions import Floats, Profile

UNIT = 2**80
"""Multipliers are rounded down to parts of one over this, and costs are counted in such parts."""
_FILTER = 1e-9
"""Share of the sum of all terms by which floating point may be wrong about a cost."""


class DualTerm(NamedTuple):
    """Charge of a job complete at ``e`` for its work in an interval: ``share * max(0, inside - late(e - end))``.

    `end`: end of the interval, in microseconds. `inside`: work that is not done before the interval. `share`: price of
    a unit of work, in parts of one over `UNIT`. `late`: most work in the last moments of the job. `corners`: lengths
    between which the charge is linear, see `Profile.corners`.
    """

    end: int
    inside: int
    share: int
    late: Profile
    corners: Collection[int]


class CompletionCost:
    """Cost of a job's completion time: a price for each microsecond, and dual terms. Between corners it is linear.

    `own`: the job is complete no earlier, in microseconds. `price`: part of its weight that is left, in parts of one
    over `UNIT`; at least 0. `terms`: for the energetic intervals that its work may lie in.
    """

    def __init__(self, own: int, price: int, terms: Sequence[DualTerm] = ()) -> None:
        self._price, self._terms = price, terms
        # An interval meets a corner of the job's profile, or its work inside begins or stops to count.
        corners = {term.end + length for term in terms for length in term.corners}
        self._corners = sorted({own, *(end for end in corners if end > own)})

    def at(self, end: int) -> int:
        """Return the cost of a completion time, in parts of one over `UNIT`."""
        return self._price * end + sum(
            term.share * max(0, term.inside - term.late.at(end - term.end)) for term in self._terms
        )

    def cheapest(self) -> tuple[int, int]:
        """Return the least cost and the first completion time that has it.

        Floating point selects the corners that may be the cheapest; exact integers decide between them.
        """
        low, high = self._near()
        least = float(high.min())
        # A corner whose lower estimate is above the least upper one cannot be the cheapest.
        return min((self.at(end), end) for end, value in zip(self._corners, low, strict=True) if value <= least)

    def latest(self, most: int) -> int | None:
        """Return the last completion time of cost at most `most`.

        It is the least completion time where no cost is that low, and None where there is no last one.
        """
        low, _ = self._near()
        for k in range(len(self._corners) - 1, -1, -1):
            corner = self._corners[k]
            if low[k] <= most / UNIT and (left := most - self.at(corner)) >= 0:
                if k + 1 < len(self._corners):
                    after = self._corners[k + 1]
                    # The next corner costs more than `most`, or the loop would have ended there, so the divisor is
                    # positive.
                    return corner + left * (after - corner) // (self.at(after) - self.at(corner))
                return corner + left // self._price if self._price else None
        return self._corners[0]

    def _near(self) -> tuple[Floats, Floats]:
        """Return a lower and an upper estimate of the cost at each corner, in floating point."""
        import numpy as np

        completions = np.array(self._corners, dtype=float)
        value = self._price / UNIT * completions
        size = value.copy()
        for term in self._terms:
            value = value + term.share / UNIT * np.maximum(0, term.inside - term.late.near(completions - term.end))
            size = size + term.share / UNIT * term.inside
        return value - _FILTER * size, value + _FILTER * size


class CostOfKinds:
    """Cost of the completion time of a job with several kinds of placement, each with a cost of its own."""

    def __init__(self) -> None:
        self._costs: list[tuple[tuple[int, int], CompletionCost]] = []

    def add(self, cost: CompletionCost) -> tuple[int, int]:
        """Add the cost of one kind, and return its least value and the first completion time that has it."""
        self._costs.append((cost.cheapest(), cost))
        return self._costs[-1][0]

    def cheapest(self) -> tuple[int, int]:
        """Return the least cost and a completion time that has it."""
        return min(cheapest for cheapest, _ in self._costs)

    def latest(self, most: int) -> int | None:
        """Return the last completion time of cost at most `most`, over all kinds; None where there is no last one."""
        ends = [cost.latest(most) for (value, _), cost in self._costs if value <= most]
        if not ends:
            return self.cheapest()[1]
        found = [end for end in ends if end is not None]
        return max(found) if len(found) == len(ends) else None


class DualBound:
    """A bound on the weighted sum of completion times, in exact integers.

    `constants`: amounts that are added to all costs, in parts of one over `UNIT`, by their reason. `costs`: cost of
    each job's completion time. `rows`: inequalities with their multipliers, as rows of an argument (docs/proofs.md);
    None where some have no argument. `intervals`: fields of an argument for energetic intervals, None for none.
    """

    def __init__(
        self,
        constants: Mapping[str, int],
        costs: Sequence[CompletionCost | CostOfKinds],
        rows: list[Argument] | None = None,
        intervals: Argument | None = None,
    ) -> None:
        self.constants, self._costs, self._rows, self._intervals = constants, costs, rows, intervals
        self._cheapest = [cost.cheapest() for cost in costs]
        self._total = sum(constants.values()) + sum(value for value, _ in self._cheapest)

    @property
    def value(self) -> int:
        """Return the least weighted sum of completion times."""
        return ceil_div(self._total, UNIT)

    @property
    def completions(self) -> list[int]:
        """Return the cheapest completion time of each job, in microseconds."""
        return [completion for _, completion in self._cheapest]

    def deadlines(self, limit: int) -> dict[int, int]:
        """Return deadlines, in microseconds by job, in plans whose weighted sum is at most `limit`."""
        # All other jobs cost at least their cheapest, so that one job alone can use up the slack.
        slack = limit * UNIT - self._total
        pairs = enumerate(zip(self._costs, self._cheapest, strict=True))
        latest = ((job, cost.latest(value + slack)) for job, (cost, (value, _)) in pairs)
        return {job: deadline for job, deadline in latest if deadline is not None}

    def proof(self, sentence: str, own: Mapping[str, int], servers: tuple[str, ...], links: tuple[str, ...]) -> Proof:
        """Return the proof of the bound: its constants, and the least cost of each job.

        `own`: least completion time of all jobs, by name.
        """
        jobs = tuple(own)
        terms = [Term(reason, constant // UNIT, "weight * us") for reason, constant in self.constants.items()]
        terms += [
            Term("least cost of its completion time", value // UNIT, "weight * us", (job,))
            for job, (value, _) in zip(jobs, self._cheapest, strict=True)
        ]
        terms.append(Term("fractions", self.value - sum(term.amount for term in terms), "weight * us"))
        arithmetic = f"{added(term.amount for term in terms)} = {self.value}"
        return Proof(sentence, arithmetic, tuple(terms), tuple(jobs), servers, links, argument=self._argument(own))

    def _argument(self, own: Mapping[str, int]) -> Argument | None:
        if self._rows is None:
            return None
        if self._intervals is not None:
            return {"kind": "intervals", "denominator": UNIT, "rows": self._rows, **self._intervals}
        return completion_argument(own, UNIT, self._rows)

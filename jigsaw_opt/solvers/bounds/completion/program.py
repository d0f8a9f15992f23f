"""Least weighted sum of completion times under inequalities between them: a linear program with an exact value.

Every fact about the completion times ``C_j`` of some jobs is an inequality, ``sum_j a_j C_j >= b`` with ``a >= 0``.
The engine finds multipliers in floating point; with them the bound is added up again in integers, so it is a proof
whatever the engine returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import NamedTuple

from jigsaw_opt.formulations.linear import ProgramBuilder
from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.solvers.bounds.completion.dual_bound import UNIT, CompletionCost, DualBound
from jigsaw_opt.solvers.engines.highs import HighsEngine


class Inequality(NamedTuple):
    """The completion times of jobs, each times its factor, add up to at least `least`.

    `factors`: positive factor by index of the job. `reason`: what proves it, in the user's terms. `pair`: the two jobs
    by index and name that it follows from as jobs that share a GPU (docs/proofs.md); None otherwise. `fragments`: the
    resource and the set of fragments that it follows from alike.
    """

    factors: Mapping[int, int]
    least: int
    reason: str
    pair: Mapping[int, str] | None = None
    fragments: tuple[Argument, Argument] | None = None

    def violation(self, completions: Sequence[float]) -> float:
        """Return how far the left side is below the right side, in microseconds of the average job."""
        check_deadline()
        total = sum(self.factors.values())
        return (self.least - sum(factor * completions[k] for k, factor in self.factors.items())) / total


class CompletionProgram:
    """Minimise the weighted sum of completion times, each at least the job's own, under a growing set of inequalities.

    `own`: least completion time of each job in microseconds.
    """

    def __init__(self, weights: Sequence[int], own: Sequence[int]) -> None:
        self.weights, self.own = tuple(weights), tuple(own)
        self.rows: list[Inequality] = []
        self.completions: list[float] = [float(least) for least in own]
        self._multipliers: list[float] = []
        self._scale = float(max(1, *own))
        self._engine = self._start()

    def add(self, row: Inequality) -> None:
        """Add an inequality; it counts from the next `solve` on."""
        # The engine sees factors of sum 1 and times in units of `_scale`, which suits its tolerances.
        total = sum(row.factors.values())
        jobs = sorted(row.factors)
        least = float(Fraction(row.least, total)) / self._scale
        factors = [float(Fraction(row.factors[k], total)) for k in jobs]
        self._engine.add_row(least, inf, jobs, factors)
        self.rows.append(row)

    def copy(self) -> CompletionProgram:
        """Return a new program with the inequalities in use."""
        program = CompletionProgram(self.weights, self.own)
        for row in self.used():
            program.add(row)
        return program

    def used(self) -> list[Inequality]:
        """Return the inequalities with positive multipliers."""
        return [row for row, _ in self._shares()]

    def solve(self) -> None:
        """Find the best completion times and the multipliers that prove them, both in floating point."""
        found = self._engine.run()
        self.completions = [value * self._scale for value in found.values.tolist()]
        self._multipliers = found.duals.tolist()

    def dual(self) -> DualBound:
        """Return the bound that the multipliers prove.

        What they take of a job's weight is shared out to the inequalities, and the rest counts with the job's own
        completion time. Where rounding has taken more than there is, all multipliers are scaled down.
        """
        shares = within_weights(self.weights, self._shares())
        costs = [CompletionCost(*both) for both in zip(self.own, prices_left(self.weights, shares), strict=True)]
        return DualBound(constants(shares), costs, row_arguments(shares))

    @property
    def reason(self) -> str:
        """Return the reason that gains most from the multipliers, in the user's terms."""
        gains = {"critical paths of all jobs": 0}
        for row, share in self._shares():
            gains[row.reason] = gains.get(row.reason, 0) + share * self._gain(row)
        return max(gains, key=lambda reason: gains[reason])

    def _gain(self, row: Inequality) -> int:
        """Return by how much the right side exceeds what the jobs' own completion times give."""
        return row.least - sum(factor * self.own[k] for k, factor in row.factors.items())

    def _shares(self) -> list[tuple[Inequality, int]]:
        """Return the positive multipliers of the inequalities, in parts of one over `UNIT`."""
        # Rows that came after the last `solve` have no multiplier yet.
        pairs = zip(self.rows, self._multipliers, strict=False)
        return [(row, int(Fraction(value) * UNIT / sum(row.factors.values()))) for row, value in pairs if value > 0]

    def _start(self) -> HighsEngine:
        builder = ProgramBuilder()
        builder.add_columns([float(weight) for weight in self.weights], [least / self._scale for least in self.own])
        return HighsEngine(builder.program(), {"presolve": "off"})


def row_arguments(shares: Sequence[tuple[Inequality, int]]) -> list[Argument] | None:
    """Return inequalities with multipliers as rows of an argument; None where one of them has no argument."""
    pairs: dict[tuple[str, ...], list[list[int]]] = {}
    sets: dict[int, tuple[Argument, list[Argument]]] = {}
    for row, share in shares:
        if row.fragments is not None and share:
            resource, own = row.fragments
            sets.setdefault(id(resource), (resource, []))[1].append({**own, "multiplier": share})
        elif row.pair is None and share:
            return None
        elif row.pair is not None and share:
            numbers = [*(row.factors.get(k, 0) for k in row.pair), row.least, share]
            pairs.setdefault(tuple(row.pair.values()), []).append(numbers)
    found = [{"kind": "pair", "jobs": [*names], "rows": rows} for names, rows in pairs.items()]
    return found + [{"kind": "fragments", "resource": each, "sets": rows} for each, rows in sets.values()]


def constants(shares: Sequence[tuple[Inequality, int]]) -> dict[str, int]:
    """Return what inequalities with multipliers add to a bound, in parts of one over `UNIT`, by their reason."""
    found: dict[str, int] = {}
    for row, share in shares:
        found[row.reason] = found.get(row.reason, 0) + share * row.least
    return found


def prices_left(weights: Sequence[int], shares: Sequence[tuple[Inequality, int]]) -> list[int]:
    """Return what inequalities with multipliers leave of each job's weight, in parts of one over `UNIT`.

    By job; negative where the multipliers take more than its weight.
    """
    prices = [weight * UNIT for weight in weights]
    for row, share in shares:
        for job, factor in row.factors.items():
            prices[job] -= share * factor
    return prices


def within_weights(weights: Sequence[int], shares: Sequence[tuple[Inequality, int]]) -> list[tuple[Inequality, int]]:
    """Return inequalities with multipliers, all scaled down by one factor where they take more than a job's weight."""
    pairs = zip(weights, prices_left(weights, shares), strict=True)
    # `w * UNIT - price` is what the multipliers take of a job. Any multipliers prove a bound if no price is negative,
    # and one factor for all keeps them in balance.
    part = min([Fraction(1), *(Fraction(w * UNIT, w * UNIT - price) for w, price in pairs if price < 0)])
    return [(row, int(share * part)) for row, share in shares]

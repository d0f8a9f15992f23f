"""Whether bins can hold all that is asked of them: column generation, with every refutation checked in integers.

The columns are patterns: what one bin can hold (Gilmore and Gomory, 1961). For any prices of the classes of items, the
bins together hold at most the sum of their best patterns; if all that is asked is worth more, it does not fit. That
inequality is the proof, in integers, whatever the linear program returned that the prices come from (Farley, 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from jigsaw_opt.formulations.linear import NO_ENTRIES, Entries, ProgramBuilder
from jigsaw_opt.solvers.bounds.budget import BoundBudget
from jigsaw_opt.solvers.bounds.packing.knapsack import CELLS, Item, Pattern, best_pattern
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.engines.highs import HighsEngine

__all__ = ["BinType", "KnapsackBins", "Packing", "PackingTest", "Refutation", "refutation"]

_FINEST = 2**36
"""Integer that the largest price is rounded to."""
_CELL_SECONDS = 4e-9
"""Time that a usual core takes for one cell of a knapsack."""
_PROGRAM_SECONDS = 1e-3
"""Time of one round of the linear program, in seconds."""
_ROUNDS = 400
"""Largest number of rounds; after them it stays open whether the demands fit."""


class BinType(Protocol):
    """Bins that are alike."""

    @property
    def count(self) -> int:
        """Return the number of such bins."""

    @property
    def seconds(self) -> float:
        """Return about the time of finding a best pattern, in seconds."""

    @property
    def sizes(self) -> dict[int, int]:
        """Return the size of one copy of each class that the bins may hold."""

    def best(self, prices: Sequence[int]) -> Pattern | None:
        """Return the most valuable pattern at some prices, with copies by class; None where it was not found."""


@dataclass(frozen=True, slots=True)
class KnapsackBins:
    """Bins that are alike, as knapsacks: how many, their capacity, and the classes that they may hold."""

    count: int
    capacity: int
    items: dict[int, Item]

    @property
    def seconds(self) -> float:
        """Return about the time of finding a best pattern, in seconds."""
        return len(self.items) * 2 * CELLS * _CELL_SECONDS

    @property
    def sizes(self) -> dict[int, int]:
        """Return the size of one copy of each class that the bins may hold."""
        return {c: item.size for c, item in self.items.items()}

    def best(self, prices: Sequence[int]) -> Pattern:
        """Return the most valuable pattern at some prices, with copies by class."""
        classes = list(self.items)
        found = best_pattern([*self.items.values()], [prices[c] for c in classes], self.capacity)
        return Pattern(found.value, {classes[k]: copies for k, copies in found.copies.items()})


class Refutation(NamedTuple):
    """Integer prices at which what is asked is worth more than all bins hold, and the best pattern of each bin type."""

    prices: tuple[int, ...]
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """Bin types, and what they have to hold together.

    `demands`: least number of copies of each class. `jobs`: names of the jobs of each class.
    """

    bins: tuple[BinType, ...]
    demands: tuple[int, ...]
    jobs: tuple[tuple[str, ...], ...]

    @property
    def seconds(self) -> float:
        """Return about the time of pricing all bin types once, in seconds."""
        return sum(bins.seconds for bins in self.bins)

    def sizes(self) -> tuple[int, ...]:
        """Return the least size of each class: prices that already know how full the bins are."""
        sizes = [bins.sizes for bins in self.bins]
        return tuple(min((own[c] for own in sizes if c in own), default=0) for c in range(len(self.demands)))

    def patterns(self, prices: Sequence[int]) -> tuple[Pattern, ...] | None:
        """Return the best pattern of each bin type; None where one was not found."""
        found = [bins.best(prices) for bins in self.bins]
        patterns = tuple(pattern for pattern in found if pattern is not None)
        return patterns if len(patterns) == len(found) else None

    def too_much(self, prices: Sequence[int], patterns: Sequence[Pattern]) -> bool:
        """Return whether the demands are worth more than the best patterns of all bins."""
        asked = sum(price * demand for price, demand in zip(prices, self.demands, strict=True))
        return sum(bins.count * best.value for bins, best in zip(self.bins, patterns, strict=True)) < asked

    def refuted_at(self, prices: tuple[int, ...]) -> Refutation | None:
        """Return the proof by some prices that the demands do not fit; None where the prices prove nothing."""
        patterns = self.patterns(prices)
        return Refutation(prices, patterns) if patterns is not None and self.too_much(prices, patterns) else None

    def proof(self, refutation: Refutation, sentence: str, links: tuple[str, ...]) -> Proof:
        """Return a refutation as a proof for the user: the worth of the demands, and the most that the bins hold."""
        asked = [
            Term("price of all places asked for", price * demand, "", jobs)
            for price, demand, jobs in zip(refutation.prices, self.demands, self.jobs, strict=True)
        ]
        held = [
            Term("best value of like bins", bins.count * best.value, "")
            for bins, best in zip(self.bins, refutation.patterns, strict=True)
        ]
        arithmetic = f"{added(term.amount for term in asked)} <= {added(term.amount for term in held)}"
        names = tuple(name for jobs in self.jobs for name in jobs)
        return Proof(sentence, arithmetic, (*asked, *held), names, links=links)


class PackingTest:
    """Refutes one packing after the other, trying first the prices that refuted the last."""

    def __init__(self) -> None:
        self._prices: tuple[int, ...] = ()

    def refutes(self, packing: Packing, budget: BoundBudget) -> Refutation | None:
        """Return the proof that the demands do not fit; None where that stays open."""
        # A search by bisection asks for nearly the same packing again and again, so that old prices often refute the
        # next one.
        for known in (self._prices, packing.sizes()):
            if len(known) == len(packing.demands):
                budget.charge(packing.seconds)
                if (found := packing.refuted_at(known)) is not None:
                    return found
        found = refutation(packing, packing.sizes(), budget)
        self._prices = found.prices if found is not None else self._prices
        return found


def refutation(packing: Packing, start: tuple[int, ...], budget: BoundBudget) -> Refutation | None:
    """Return the proof that the demands do not fit, by column generation; None where none was found."""
    program = _Program(packing)
    prices = start
    for _ in range(_ROUNDS):
        budget.charge(packing.seconds + _PROGRAM_SECONDS)
        patterns = packing.patterns(prices)
        if patterns is None:
            return None
        # This test is in exact integers. All that is below only looks for better prices.
        if packing.too_much(prices, patterns):
            return Refutation(prices, patterns)
        # Without a new column the program would return the same prices for ever.
        if budget.spent or not program.add(patterns):
            return None
        program.solve()
        if program.fits:
            return None
        prices = program.prices
    return None


class _Program:
    """The largest part of all that is asked that the patterns found so far can hold."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        builder, count = ProgramBuilder(), len(packing.demands)
        # Column 0 is the share of all demands that is packed, at most 1, and is maximised. Patterns come as further
        # columns: they cover that share of each demand, and use no more bins of each type than there are.
        (part,) = builder.add_columns([-1.0], upper=1.0)
        asked = Entries(range(count), [part] * count, [-float(demand) for demand in packing.demands])
        builder.add_rows(asked, [0.0] * count, inf)
        builder.add_rows(NO_ENTRIES, -inf, [float(bins.count) for bins in packing.bins])
        self._engine = HighsEngine(builder.program())

    def add(self, patterns: Sequence[Pattern]) -> bool:
        """Add new columns; return whether there was a new one."""
        new = False
        for number, pattern in enumerate(patterns):
            key = number, tuple(sorted(pattern.copies.items()))
            if key not in self._known:
                self._known.add(key)
                self._column(number, pattern.copies)
                new = True
        return new

    def _column(self, number: int, copies: dict[int, int]) -> None:
        rows = [*copies, len(self._packing.demands) + number]
        self._engine.add_column(0.0, rows, [*map(float, copies.values()), 1.0])

    def solve(self) -> None:
        """Find the best use of the columns."""
        self._found = self._engine.run()

    @property
    def fits(self) -> bool:
        """Return whether the columns hold all demands, so that no prices prove the contrary."""
        # An error of rounding here can only give up a refutation; it cannot make one.
        return self._found.objective <= -1 + 1e-9

    @property
    def prices(self) -> tuple[int, ...]:
        """Return the duals, rounded to integers."""
        duals = [abs(price) for price in self._found.duals[: len(self._packing.demands)].tolist()]
        # Any prices are valid, so that rounding costs at most a little of the bound. The least value avoids a division
        # by 0.
        scale = _FINEST / max([*duals, 1e-30])
        return tuple(int(price * scale) for price in duals)

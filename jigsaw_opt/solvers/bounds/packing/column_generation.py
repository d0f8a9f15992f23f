"""Whether bins can hold all that is asked of them: column generation, with every refutation checked in integers.

The columns are patterns: what one bin can hold (Gilmore and Gomory, 1961). For any prices of the classes of items, the
bins together hold at most the sum of their best patterns; if all that is asked is worth more, it does not fit. That
inequality is the proof, in integers, whatever the linear program returned that the prices come from (Farley, 1990).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, Entries, ProgramBuilder
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget
from jigsaw_opt.solvers.engines.highs import HighsEngine

CELLS = 2**14
"""Sizes are counted in parts of one over this of the capacity, rounded down: a bin seems larger by so little."""


class Item(NamedTuple):
    """Kind of item that may go into a bin.

    `size`: of one copy, at least 0. `head`: A bin that holds it has so much less capacity; of several heads the least
    one counts.
    """

    size: int
    copies: int
    head: int


class Pattern(NamedTuple):
    """Value of the best pattern of a bin, or more, and its copies by the item's index."""

    value: int
    copies: dict[int, int]


def best_pattern(items: Sequence[Item], values: Sequence[int], capacity: int) -> Pattern:
    """Return the most valuable copies that fit into a bin, by dynamic programming over rounded sizes.

    Every pattern whose sizes add up to at most ``capacity - least head`` also fits once all is rounded, so
    the value is an upper bound on that of each; it is exact where the capacity is at most `CELLS`.

    `capacity`: of the bin, at least 0.
    """
    import numpy as np

    # A capacity of 0 has one cell, too.
    unit = -(-capacity // CELLS) or 1
    # With the latest heads first, all items so far fit into a bin that starts with the head of the last.
    order = sorted((k for k, value in enumerate(values) if value > 0), key=lambda k: -items[k].head)
    worth = sum(value * item.copies for value, item in zip(values, items, strict=True))
    # No entry exceeds the value of all copies together; above 64 bits Python's integers take over.
    best = np.zeros(capacity // unit + 1, dtype=np.int64 if worth < EXACT_IN_64_BITS else object)
    taken: list[tuple[int, int, int, np.ndarray[tuple[int], np.dtype[np.bool_]]]] = []
    found, at, steps = 0, 0, 0
    for k in order:
        item = items[k]
        size, room = item.size // unit, capacity - item.head
        for count in _powers(item.copies):
            shift = count * size
            if shift >= len(best):
                break
            # The sums are a copy, made before any entry changes, so that each bundle is taken at most once.
            better = best[: len(best) - shift] + count * values[k]
            gain = better > best[shift:]
            best[shift:][gain] = better[gain]
            taken.append((k, count, shift, gain))
        if room >= 0 and best[room // unit] > found:
            # Later steps are of items with smaller heads, and none of this pattern.
            found, at, steps = int(best[room // unit]), room // unit, len(taken)
    copies: dict[int, int] = {}
    for k, count, shift, gain in reversed(taken[:steps]):
        if at >= shift and gain[at - shift]:
            copies[k] = copies.get(k, 0) + count
            at -= shift
    return Pattern(found, copies)


def _powers(count: int) -> Iterator[int]:
    """Yield numbers that add up to `count`, such that every number up to it is a sum of some of them."""
    # Binary splitting: n copies become about log2 n bundles.
    part = 1
    while count > 0:
        yield min(part, count)
        count -= part
        part *= 2


_FINEST = 2**36
"""Integer that the largest price is rounded to."""
_CELL_SECONDS = 4e-9
"""Time that a usual core takes for one cell of a knapsack."""
_PROGRAM_SECONDS = 1e-3
"""Time of one round of the linear program, in seconds."""
_ROUNDS = 400
"""Largest number of rounds; after them it stays open whether the demands fit."""


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

    bins: tuple[KnapsackBins, ...]
    demands: tuple[int, ...]
    jobs: tuple[tuple[str, ...], ...]

    @property
    def seconds(self) -> float:
        """Return about the time of pricing all bin types once, in seconds."""
        return sum(bins.seconds for bins in self.bins)

    def sizes(self) -> tuple[int, ...]:
        """Return the least size of each class: prices that already know how full the bins are."""
        kinds = [bins.items for bins in self.bins]
        return tuple(min((own[c].size for own in kinds if c in own), default=0) for c in range(len(self.demands)))

    def patterns(self, prices: Sequence[int]) -> tuple[Pattern, ...]:
        """Return the best pattern of each bin type."""
        return tuple(bins.best(prices) for bins in self.bins)

    def too_much(self, prices: Sequence[int], patterns: Sequence[Pattern]) -> bool:
        """Return whether the demands are worth more than the best patterns of all bins."""
        asked = sum(price * demand for price, demand in zip(prices, self.demands, strict=True))
        return sum(bins.count * best.value for bins, best in zip(self.bins, patterns, strict=True)) < asked

    def proof(self, refutation: Refutation, sentence: str, links: tuple[str, ...], limit: int) -> Proof:
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
        prices = {name: p for p, jobs in zip(refutation.prices, self.jobs, strict=True) if p for name in jobs}
        argument = {"kind": "bins", "limit": limit, "links": [*links], "prices": prices}
        return Proof(sentence, arithmetic, (*asked, *held), tuple(prices), links=links, argument=argument)


class PackingTest:
    """Refutes one packing after the other, trying first the prices that refuted the last."""

    def __init__(self) -> None:
        self._prices: tuple[int, ...] = ()

    def refutes(self, packing: Packing, budget: BoundBudget) -> Refutation | None:
        """Return the proof that the demands do not fit, by column generation; None where that stays open."""
        program = _Program(packing)
        # A search by bisection asks for nearly the same packing again and again, so that old prices often refute the
        # next one.
        asked = len(packing.demands)
        first = dict.fromkeys(known for known in (self._prices, packing.sizes()) if len(known) == asked)
        for prices in islice(chain(first, iter(program.prices, None)), _ROUNDS):
            budget.charge(packing.seconds + _PROGRAM_SECONDS)
            patterns = packing.patterns(prices)
            # This test is in exact integers. All else only looks for better prices.
            if packing.too_much(prices, patterns):
                self._prices = prices
                return Refutation(prices, patterns)
            # Without a new column the program would return the same prices for ever.
            if (not program.add(patterns) and prices not in first) or budget.spent:
                return None
        return None


class _Program:
    """The largest part of all that is asked that the patterns found so far can hold."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()

    @cached_property
    def _engine(self) -> HighsEngine:
        builder, demands = ProgramBuilder(), self._packing.demands
        # Column 0 is the share of all demands that is packed, at most 1, and is maximised. Patterns come as further
        # columns: they cover that share of each demand, and use no more bins of each type than there are.
        (part,) = builder.add_columns([-1.0], upper=1.0)
        asked = Entries(range(len(demands)), [part] * len(demands), [-float(demand) for demand in demands])
        builder.add_rows(asked, [0.0] * len(demands), inf)
        builder.add_rows(NO_ENTRIES, -inf, [float(bins.count) for bins in self._packing.bins])
        return HighsEngine(builder.program())

    def add(self, patterns: Sequence[Pattern]) -> bool:
        """Add new columns; return whether there was a new one."""
        new = False
        for number, pattern in enumerate(patterns):
            key = number, tuple(sorted(pattern.copies.items()))
            if key not in self._known:
                self._known.add(key)
                rows = [*pattern.copies, len(self._packing.demands) + number]
                self._engine.add_column(0.0, rows, [*map(float, pattern.copies.values()), 1.0])
                new = True
        return new

    def prices(self) -> tuple[int, ...] | None:
        """Return the duals, rounded to integers; None where the columns hold all demands, so that none prove more."""
        found = self._engine.run()
        # An error of rounding here can only give up a refutation; it cannot make one.
        if found.objective <= -1 + 1e-9:
            return None
        duals = [abs(price) for price in found.duals[: len(self._packing.demands)].tolist()]
        # Any prices are valid, so that rounding costs at most a little of the bound. The least value avoids a division
        # by 0.
        scale = _FINEST / max([*duals, 1e-30])
        return tuple(int(price * scale) for price in duals)

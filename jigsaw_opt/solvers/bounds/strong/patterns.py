"""Whether bins can hold all that is asked of them: column generation, with every refutation checked in integers.

The columns are what one bin can hold. For any prices of the classes of items, the bins together hold at most the
sum of their best contents; if all that is asked is worth more, it does not fit. That inequality is the proof, in
integers, whatever the linear program returned that the prices come from (Farley, 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.bounds.strong.knapsack import CELLS, Content, Item, best_content
from jigsaw_opt.solvers.engines.highs import run_limited

if TYPE_CHECKING:
    from highspy import Highs

__all__ = ["Bins", "Kind", "Packing", "Piece", "Refuter", "refutation", "refutes"]

_FINEST = 2**36
"""Integer that the largest price is rounded to."""
_CELL_SECONDS = 4e-9
"""Time that a usual core takes for one cell of a knapsack."""
_PROGRAM_SECONDS = 1e-3
"""And for one round of the linear program."""
_ROUNDS = 400
"""Rounds after which the question stays open."""


class Kind(Protocol):
    """Bins that are alike."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def seconds(self) -> float:
        """About the time of finding a best content."""

    @property
    def sizes(self) -> dict[int, int]:
        """What one copy takes, of each class that they may hold."""

    def best(self, prices: Sequence[int]) -> Content | None:
        """Most valuable content at some prices, with copies by class; None where it was not found."""


class Piece(NamedTuple):
    """What one copy of a class takes of a bin: see `Item`."""

    size: int
    copies: int
    head: int


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins that are alike: how many, their capacity, and the classes that they may hold."""

    count: int
    capacity: int
    pieces: dict[int, Piece]

    @property
    def seconds(self) -> float:
        """About the time of finding a best content."""
        return len(self.pieces) * 2 * CELLS * _CELL_SECONDS

    @property
    def sizes(self) -> dict[int, int]:
        """What one copy takes, of each class that they may hold."""
        return {c: piece.size for c, piece in self.pieces.items()}

    def best(self, prices: Sequence[int]) -> Content:
        """Most valuable content at some prices, with copies by class."""
        classes = list(self.pieces)
        items = [Item(prices[c], *self.pieces[c]) for c in classes]
        found = best_content(items, self.capacity)
        return Content(found.value, {classes[k]: copies for k, copies in found.copies.items()})


@dataclass(frozen=True, slots=True)
class Packing:
    """Kinds of bins, and the least number of copies of each class that they have to hold together."""

    bins: tuple[Kind, ...]
    demands: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """About the time of pricing all kinds of bins once."""
        return sum(kind.seconds for kind in self.bins)

    def sizes(self) -> tuple[int, ...]:
        """Least size of each class: prices that already know how full the bins are."""
        sizes = [kind.sizes for kind in self.bins]
        return tuple(min((own[c] for own in sizes if c in own), default=0) for c in range(len(self.demands)))

    def contents(self, prices: Sequence[int]) -> list[Content] | None:
        """The best content of a bin of each kind; None where one was not found."""
        found = [kind.best(prices) for kind in self.bins]
        contents = [content for content in found if content is not None]
        return contents if len(contents) == len(found) else None

    def too_much(self, prices: Sequence[int], contents: Sequence[Content]) -> bool:
        """Whether what is asked is worth more than the best contents of all bins."""
        asked = sum(price * demand for price, demand in zip(prices, self.demands, strict=True))
        return sum(kind.count * found.value for kind, found in zip(self.bins, contents, strict=True)) < asked


class Refuter:
    """Answers one question after the other, trying first the prices that answered the last."""

    def __init__(self) -> None:
        self._prices: tuple[int, ...] = ()

    def refutes(self, packing: Packing, budget: Budget) -> bool:
        """Whether it is proven that not all that is asked fits."""
        for known in (self._prices, packing.sizes()):
            if len(known) == len(packing.demands):
                budget.pay(packing.seconds)
                if refutes(packing, known):
                    return True
        found = refutation(packing, packing.sizes(), budget)
        self._prices = found or self._prices
        return found is not None


def refutes(packing: Packing, prices: Sequence[int]) -> bool:
    """Whether integer prices prove that not all that is asked fits."""
    contents = packing.contents(prices)
    return contents is not None and packing.too_much(prices, contents)


def refutation(packing: Packing, start: Sequence[int], budget: Budget) -> tuple[int, ...] | None:
    """Integer prices that prove that not all that is asked fits, or None where none were found.

    Parameters
    ----------
    packing
        The question.
    start
        Prices to begin with.
    budget
        Pays for every round.
    """
    program = _Program(packing)
    prices = tuple(start)
    for _ in range(_ROUNDS):
        budget.pay(packing.seconds + _PROGRAM_SECONDS)
        contents = packing.contents(prices)
        if contents is None:
            return None
        if packing.too_much(prices, contents):
            return prices
        if budget.spent or not program.add(contents):
            return None
        program.solve()
        if program.fits:
            return None
        prices = program.prices
    return None


class _Program:
    """The largest part of all that is asked that the contents found so far can hold."""

    def __init__(self, packing: Packing) -> None:
        import highspy

        self._packing = packing
        self._known: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        self._engine: Highs = highspy.Highs()
        self._engine.setOptionValue("output_flag", False)
        self._engine.setOptionValue("threads", 1)
        for _ in packing.demands:
            self._engine.addRow(0.0, highspy.kHighsInf, 0, [], [])
        for kind in packing.bins:
            self._engine.addRow(-highspy.kHighsInf, float(kind.count), 0, [], [])
        count = len(packing.demands)
        self._engine.addCol(-1.0, 0.0, 1.0, count, list(range(count)), [-float(demand) for demand in packing.demands])

    def add(self, contents: Sequence[Content]) -> bool:
        """Take new columns; says whether there was a new one."""
        new = False
        for number, content in enumerate(contents):
            key = number, tuple(sorted(content.copies.items()))
            if key not in self._known:
                self._known.add(key)
                self._column(number, content.copies)
                new = True
        return new

    def _column(self, number: int, copies: dict[int, int]) -> None:
        rows = [*copies, len(self._packing.demands) + number]
        self._engine.addCol(0.0, 0.0, self._engine.inf, len(rows), rows, [*map(float, copies.values()), 1.0])

    def solve(self) -> None:
        """Find the best use of the columns."""
        run_limited(self._engine)

    @property
    def fits(self) -> bool:
        """Whether the columns hold everything, so that no prices prove the contrary."""
        return bool(self._engine.getInfo().objective_function_value <= -1 + 1e-9)

    @property
    def prices(self) -> tuple[int, ...]:
        """The duals, rounded to integers."""
        duals = [abs(price) for price in self._engine.getSolution().row_dual[: len(self._packing.demands)]]
        scale = _FINEST / max([*duals, 1e-30])
        return tuple(int(price * scale) for price in duals)

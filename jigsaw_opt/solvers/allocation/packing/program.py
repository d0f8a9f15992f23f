"""The linear master program in HiGHS, to which columns are added one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jigsaw_opt.formulations.packing import Column, Master, Prices
from jigsaw_opt.solvers.engines.highs import HighsEngine

__all__ = ["MasterSolution", "RelaxedMaster"]


class MasterSolution(NamedTuple):
    """A solution of the linear program: its value, how much of each column, and the prices of the rows."""

    value: float
    columns: list[float]
    prices: Prices


class RelaxedMaster:
    """The master program without integrality."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self._engine = HighsEngine(master.program(), {"solver": "simplex", "presolve": "off"})

    def add(self, column: Column) -> None:
        """Add a pattern."""
        self._engine.add_column(0.0, column.rows, column.coefficients)

    def limit(self, upper: Sequence[float]) -> None:
        """Change the right-hand sides of all rows."""
        self._engine.limit_rows(upper)

    def solve(self) -> MasterSolution:
        """Solve it, starting from the last basis."""
        found = self._engine.run()
        # The engine minimises, so a price is what the objective falls by.
        prices = (-found.duals).clip(min=0.0).tolist()
        types, classes = self.master.types, self.master.classes
        return MasterSolution(
            -found.objective,
            found.values[len(self.master.steps) :].tolist(),
            Prices(prices[:types], prices[types : types + classes], prices[types + classes :]),
        )

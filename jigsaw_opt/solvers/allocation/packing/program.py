"""The linear master program in HiGHS, to which columns are added one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jigsaw_opt.formulations.packing import Column, Master, Prices

__all__ = ["Program", "Solution"]


class Solution(NamedTuple):
    """A solution of the linear program: its value, how much of each column, and the prices of the rows."""

    value: float
    columns: list[float]
    prices: Prices


class Program:
    """The master program without integrality.

    Parameters
    ----------
    master
        Its rows and first columns.
    """

    def __init__(self, master: Master) -> None:
        import highspy

        self.master = master
        self._engine = engine = highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, "solver": "simplex", "presolve": "off"}.items():
            engine.setOptionValue(name, value)
        engine.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self._infinity = highspy.kHighsInf
        for upper in master.upper:
            engine.addRow(-self._infinity, upper, 0, [], [])
        for cost, width, entries in zip(master.costs, master.widths, master.steps, strict=True):
            engine.addCol(cost, 0.0, min(width, self._infinity), len(entries.rows), entries.rows, entries.coefficients)

    def add(self, column: Column) -> None:
        """Add a pattern."""
        self._engine.addCol(0.0, 0.0, self._infinity, len(column.rows), column.rows, column.coefficients)

    def limit(self, upper: Sequence[float]) -> None:
        """Change the right-hand sides of all rows."""
        for row, value in enumerate(upper):
            self._engine.changeRowBounds(row, -self._infinity, value)

    def solve(self) -> Solution:
        """Solve it from where it was."""
        self._engine.run()
        found = self._engine.getSolution()
        prices = [max(0.0, price) for price in found.row_dual]
        types, classes = self.master.types, self.master.classes
        return Solution(
            self._engine.getInfo().objective_function_value,
            list(found.col_value[len(self.master.steps) :]),
            Prices(prices[:types], prices[types : types + classes], prices[types + classes :]),
        )

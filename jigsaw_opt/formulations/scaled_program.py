"""A program in units of its own, so that tolerances of engines are a tiny share of every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.linear import LinearProgram

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

_LARGEST = 10**7
"""Continuous columns are scaled to at most this: far from where floats lose digits, with an engine's tolerance of 1e-6
a tiny share of any horizon."""


class ScaledProgram:
    """A program whose continuous columns are at most `_LARGEST`, all rows with such columns scaled to them.

    Continuous columns without a cost are times and have one unit, those with a cost another one. Units and the factors
    of rows are powers of two, so scaling loses nothing.

    `original`: the program; its continuous columns have upper bounds, and some column has a cost. `program`: the scaled
    program; its costs are at most 1. `time`: unit of the columns of times, in that of the original. `objective`: what
    the objective of `program` is to be multiplied with, for that of the original.
    """

    def __init__(self, original: LinearProgram) -> None:
        import numpy as np

        of_objective = ~original.integer & (original.costs != 0)
        self.time = _unit(original.upper[~original.integer & ~of_objective])
        self._factors = np.where(of_objective, _unit(original.upper[of_objective]), self.time)
        self._factors[original.integer] = 1.0
        self.objective = float((original.costs * self._factors).max())
        values = original.values * self._factors[original.columns]
        largest = np.zeros(len(original.row_lower))
        # Only continuous columns count here: rows of integer columns alone stay as they are.
        np.maximum.at(largest, original.rows, np.where(original.integer[original.columns], 0.0, np.abs(values)))
        of_row = _powers_of_two(largest)
        self.program = replace(
            original,
            costs=original.costs * self._factors / self.objective,
            lower=original.lower / self._factors,
            upper=original.upper / self._factors,
            row_lower=original.row_lower / of_row,
            row_upper=original.row_upper / of_row,
            values=values / of_row[original.rows],
        )

    def unscaled(self, values: Sequence[float] | Floats) -> list[float]:
        """Return values of the columns in the units of the original."""
        import numpy as np

        unscaled: list[float] = (np.asarray(values) * self._factors).tolist()
        return unscaled


def _unit(upper: Floats) -> float:
    """Return the unit in which no upper bound is above `_LARGEST`."""
    return float(_powers_of_two(upper / _LARGEST).max(initial=1.0))


def _powers_of_two(values: Floats) -> Floats:
    """Return the least power of two that is at least each value and at least 1."""
    import numpy as np

    powers: Floats = np.exp2(np.ceil(np.log2(np.maximum(values, 1.0))))
    return powers

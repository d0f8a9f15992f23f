"""A linear or mixed-integer program in sparse arrays: what every formulation with linear rows comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Integers: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"


class Entries(NamedTuple):
    """Coefficients of some rows: ``values[k]`` stands in row ``rows[k]`` and column ``columns[k]``."""

    rows: ArrayLike
    columns: ArrayLike
    values: ArrayLike


NO_ENTRIES = Entries((), (), ())
"""The entries of rows whose coefficients come with later columns."""


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise ``costs @ x`` subject to ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    `costs, lower, upper`: objective coefficient and bounds of each column; infinities stand for absent bounds.
    `integer`: whether each column takes whole values only. `rows, columns, values`: coefficients of A: ``values[k]``
    stands in row ``rows[k]`` and column ``columns[k]``, each place at most once.
    """

    costs: Floats
    lower: Floats
    upper: Floats
    integer: Flags
    row_lower: Floats
    row_upper: Floats
    rows: Integers
    columns: Integers
    values: Floats

    def by_column(self) -> tuple[Integers, Integers, Floats]:
        """Return the start of every column, and row and value of every coefficient, in the order of columns."""
        import numpy as np

        # The last key is the first to count: by column, and by row within a column.
        order = np.lexsort((self.rows, self.columns))
        counts = np.bincount(self.columns, minlength=len(self.costs))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return starts, self.rows[order], self.values[order]


@dataclass(slots=True)
class ProgramBuilder:
    """A program under construction, a family of columns or rows at a time.

    `columns, rows`: how many there are so far.
    """

    columns: int = 0
    rows: int = 0
    _columns: list[tuple[Any, ...]] = field(default_factory=list)
    _sides: list[tuple[Any, ...]] = field(default_factory=list)
    _entries: list[tuple[Any, ...]] = field(default_factory=list)

    def add_columns(
        self, costs: ArrayLike, lower: ArrayLike = 0.0, upper: ArrayLike = float("inf"), integer: ArrayLike = False
    ) -> Integers:
        """Add a column for each cost; a single bound, or a single kind, is that of all of them.

        `integer`: whether a column takes whole values only.
        """
        import numpy as np

        family = np.broadcast_arrays(np.asarray(costs, dtype=float), lower, upper, integer)
        self._columns.append(tuple(family))
        first, self.columns = self.columns, self.columns + len(family[0])
        return np.arange(first, self.columns)

    def add_rows(self, entries: Entries, lower: ArrayLike, upper: ArrayLike) -> None:
        """Add rows.

        `entries`: their coefficients; rows are counted from the first of this family. `lower, upper`: bounds of each
        row; a single one is that of all of them.
        """
        import numpy as np

        sides = np.broadcast_arrays(np.asarray(lower, dtype=float), np.asarray(upper, dtype=float))
        rows = np.asarray(entries.rows, dtype=np.int64) + self.rows
        self._sides.append(tuple(sides))
        self._entries.append((rows, np.asarray(entries.columns, dtype=np.int64), np.asarray(entries.values, float)))
        self.rows += len(sides[0])

    def program(self) -> LinearProgram:
        """Return the program so far."""
        costs, lower, upper, integer = _joined(self._columns, (float, float, float, bool))
        row_lower, row_upper = _joined(self._sides, (float, float))
        rows, columns, values = _joined(self._entries, (int, int, float))
        return LinearProgram(costs, lower, upper, integer, row_lower, row_upper, rows, columns, values)


def _joined(families: list[tuple[Any, ...]], types: tuple[type, ...]) -> list[Any]:
    """Concatenate the arrays of all families, each kind of array by itself."""
    import numpy as np

    return [
        # The empty array lets a program without any family have arrays of the right type.
        np.concatenate([np.empty(0, dtype), *(family[k] for family in families)]).astype(dtype)
        for k, dtype in enumerate(types)
    ]

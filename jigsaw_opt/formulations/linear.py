"""A linear or integer program in arrays, for programs too large to be built term by term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Entries", "Floats", "Integers", "LinearProgram", "joined"]

Floats: TypeAlias = "NDArray[np.float64]"
Integers: TypeAlias = "NDArray[np.int64]"


class Entries(NamedTuple):
    """Coefficients of some rows: ``values[k]`` stands in row ``rows[k]`` and column ``columns[k]``."""

    rows: Integers
    columns: Integers
    values: Floats


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise ``costs @ x`` subject to ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    Parameters
    ----------
    costs, lower, upper
        By column; infinities stand for absent bounds.
    row_lower, row_upper
        By row.
    entries
        Coefficients of A, each place at most once.
    integer
        Whether every column is integer.
    """

    costs: Floats
    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats
    entries: Entries
    integer: bool = False

    def by_column(self) -> tuple[Integers, Integers, Floats]:
        """Start of every column, row index and value of every coefficient, in the order of columns."""
        import numpy as np

        order = np.lexsort((self.entries.rows, self.entries.columns))
        counts = np.bincount(self.entries.columns, minlength=len(self.costs))
        starts = np.concatenate([[0], np.cumsum(counts)])
        return starts, self.entries.rows[order], self.entries.values[order]


def joined(*families: Entries) -> Entries:
    """The coefficients of several families of rows together."""
    import numpy as np

    parts: Any = [np.concatenate(part) for part in zip(*families, strict=True)]
    return Entries(*parts)

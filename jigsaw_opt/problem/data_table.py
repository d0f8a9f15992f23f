"""A table in memory: named columns of plain values, and a frame of pandas where that is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jigsaw_opt.errors import MissingEngineError, UsageError
from jigsaw_opt.text import counted, nearest

_SHOWN = 20


class DataTable:
    """Rows of values under names.

    `columns`: names of the columns, each once. `rows`: values of each row, in the order of the columns; None for what
    is not known.
    """

    __slots__ = ("columns", "rows")

    def __init__(self, columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
        self.columns = tuple(columns)
        self.rows = tuple(map(tuple, rows))

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], first: Iterable[str] = ()) -> DataTable:
        """Return a table of rows by name, with `first` before the other columns; None where a row lacks a name."""
        columns = tuple(dict.fromkeys([*first, *(name for row in rows for name in row)]))
        return cls(columns, ([row.get(name) for name in columns] for row in rows))

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        """Return the values of a column."""
        if name not in self.columns:
            raise UsageError(f"no column {name!r}; {nearest(name, self.columns)}", code="unknown-name")
        at = self.columns.index(name)
        return tuple(row[at] for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Go through the rows, each by name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataTable):
            return NotImplemented
        return (self.columns, self.rows) == (other.columns, other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DataTable({counted(len(self.rows), 'row')} of {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first rows."""
        from html import escape

        def line(kind: str, cells: Iterable[object]) -> str:
            return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"

        shown = "".join(line("td", row) for row in self.rows[:_SHOWN])
        more = len(self.rows) - _SHOWN
        return f"<table>{line('th', self.columns)}{shown}</table>" + (f"<p>{more} more</p>" if more > 0 else "")

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingEngineError("pandas", "pandas") from error
        return pd.DataFrame.from_records(self.rows, columns=self.columns)

"""Mixed-integer programs as MPS and LP files, with every number exactly as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Literal

from jigsaw_opt.formulations.linear import LinearProgram

FileKind = Literal["mps", "lp"]
_TERMS_OF_LINE = 6
"""Lines stay short: readers take from 255 characters on."""


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """A program that can be written to a file.

    `program`: the program. Each row has one finite side, or two that are equal; integer columns have finite bounds.
    `remarks`: lines for whoever reads the file.
    """

    program: LinearProgram
    name: str
    columns: Sequence[str]
    rows: Sequence[str]
    remarks: Sequence[str] = ()

    def document(self, kind: FileKind) -> bytes:
        """Return the program as an MPS file in free format, or as an LP file.

        Numbers are written so that reading them gives the same floats, in 17 digits at most.
        """
        writers: dict[str, Callable[[], Iterator[str]]] = {"mps": self._mps, "lp": self._lp}
        return "\n".join([*writers[kind](), ""]).encode("ascii")

    def _mps(self) -> Iterator[str]:
        yield from (f"* {remark}" for remark in self.remarks)
        yield f"NAME {self.name}"
        yield "ROWS"
        yield " N OBJ"
        sides = self._sides()
        yield from (f" {sense} {row}" for row, (sense, _) in zip(self.rows, sides, strict=True))
        yield "COLUMNS"
        yield from self._mps_columns()
        yield "RHS"
        yield from (f" RHS {row} {_text(side)}" for row, (_, side) in zip(self.rows, sides, strict=True) if side)
        yield "BOUNDS"
        bounds = zip(self.columns, self.program.lower.tolist(), self.program.upper.tolist(), strict=True)
        for column, lower, upper in bounds:
            # Readers differ in the bounds of integer columns that are not stated, so that 0 is written as well.
            yield f" LO BND {column} {_text(lower)}"
            if not isinf(upper):
                yield f" UP BND {column} {_text(upper)}"
        yield "ENDATA"

    def _mps_columns(self) -> Iterator[str]:
        starts, rows, values = (array.tolist() for array in self.program.by_column())
        within = False
        for column, (name, cost) in enumerate(zip(self.columns, self.program.costs.tolist(), strict=True)):
            if bool(self.program.integer[column]) is not within:
                within = not within
                yield f" MARKER 'MARKER' '{'INTORG' if within else 'INTEND'}'"
            # Readers make a column of the first line that names it, so one that stands in no row has a line, too.
            if cost or starts[column] == starts[column + 1]:
                yield f" {name} OBJ {_text(cost)}"
            for k in range(starts[column], starts[column + 1]):
                yield f" {name} {self.rows[rows[k]]} {_text(values[k])}"
        if within:
            yield " MARKER 'MARKER' 'INTEND'"

    def _lp(self) -> Iterator[str]:
        yield from (f"\\ {remark}" for remark in self.remarks)
        yield "Minimize"
        costs = self.program.costs.tolist()
        yield from self._lp_row("OBJ", [(k, cost) for k, cost in enumerate(costs) if cost], "")
        yield "Subject To"
        terms: list[list[tuple[int, float]]] = [[] for _ in self.rows]
        entries = (self.program.rows.tolist(), self.program.columns.tolist(), self.program.values.tolist())
        for row, column, value in zip(*entries, strict=True):
            terms[row].append((column, value))
        signs = {"L": "<=", "G": ">=", "E": "="}
        for name, of_row, (sense, side) in zip(self.rows, terms, self._sides(), strict=True):
            yield from self._lp_row(name, of_row, f" {signs[sense]} {_text(side)}")
        yield "Bounds"
        bounds = zip(self.columns, self.program.lower.tolist(), self.program.upper.tolist(), strict=True)
        for column, lower, upper in bounds:
            yield f" {_text(lower)} <= {column}" + ("" if isinf(upper) else f" <= {_text(upper)}")
        yield "Generals"
        yield from (f" {name}" for name, whole in zip(self.columns, self.program.integer, strict=True) if whole)
        yield "End"

    def _lp_row(self, name: str, terms: Sequence[tuple[int, float]], end: str) -> Iterator[str]:
        """Yield a row in short lines; one without terms has its first column 0 times."""
        written = [
            f"{'-' if value < 0 else '+'} {_text(abs(value))} {self.columns[k]}" for k, value in terms or [(0, 0.0)]
        ]
        head = f" {name}: "
        for first in range(0, len(written), _TERMS_OF_LINE):
            last = first + _TERMS_OF_LINE >= len(written)
            yield head + " ".join(written[first : first + _TERMS_OF_LINE]) + end * last
            head = "  "

    def _sides(self) -> list[tuple[str, float]]:
        """Return the sense and the side of each row."""
        pairs: Iterable[tuple[float, float]] = zip(
            self.program.row_lower.tolist(), self.program.row_upper.tolist(), strict=True
        )
        return [
            ("E", lower) if lower == upper else ("L", upper) if isinf(lower) else ("G", lower) for lower, upper in pairs
        ]


def _text(value: float) -> str:
    """Return the shortest digits that read back as the same float."""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)

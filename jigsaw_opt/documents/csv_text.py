"""Tables as CSV in which no cell of ours is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_RESTORED = re.compile(r"'+[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a header and rows as CSV.

    A text that begins as a formula does gets a quote before it, which spreadsheets take for the sign of a text. Texts
    that begin with quotes and then so get one more, so that `restored` gives every text back; numbers stay as they
    are.
    """
    lines = _WrittenLines()
    # With both characters as its end, a line has neither in a cell without quotes around it.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(_cell, header))
    writer.writerows(map(_cell, row) for row in rows)
    return "\n".join([*lines.written, ""])


class _WrittenLines:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> None:
        self.written.append(line.removesuffix("\r\n"))


def restored(cell: str) -> str:
    """Return the text that `csv_text` has written as `cell`."""
    return cell[1:] if _RESTORED.match(cell) else cell


def _cell(value: object) -> object:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return "'" + value
    return value

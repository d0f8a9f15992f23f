"""Line by line through a text, with every problem under the number of its line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from itertools import count
from typing import NoReturn

from jigsaw_opt.documents.file_bytes import MEMORY_FOR_ANY, MOST_MEMORY_A_BYTE
from jigsaw_opt.errors import Code, InvalidInputError, Problem, wrong_input
from jigsaw_opt.problem.rules.report import Report

_LARGEST = 2**53 - 1
_MOST_LINES = 1_000_000
_LONGEST_LINE = 100_000
_SAVE = "save it as UTF-8; spreadsheets call that CSV UTF-8"
_MEMORY_OF_LINE = 310
"""Bytes of memory that what is read from a line takes."""


class Lines:
    """The lines of a text that hold anything, and what is wrong with them.

    `data`: the text; bytes are UTF-8. A byte order mark at its head is no part of it. `source`: what the problems call
    the text: usually the name of its file. `most`: the most lines that it may have; it may have fewer where a million
    of them are very short.
    """

    def __init__(self, data: bytes | str, source: str, most: int = _MOST_LINES) -> None:
        self.source = source
        room = MEMORY_FOR_ANY + MOST_MEMORY_A_BYTE * len(data)
        self._most = min(most, room // _MEMORY_OF_LINE)
        self._report = Report()
        try:
            # Only to find out whether it can be read: a second copy would stay for long.
            text = data if isinstance(data, str) or data.decode() else b""
        except UnicodeDecodeError as error:
            wrong = f"not UTF-8: {error.reason} at byte {error.start}"
            raise wrong_input(source, wrong, _SAVE, code="not-text") from error
        self._data = text.removeprefix("\ufeff") if isinstance(text, str) else text.removeprefix(BOM_UTF8)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong so far."""
        return self._report.problems

    def __iter__(self) -> Iterator[tuple[int, str]]:
        start, size = 0, len(self._data)
        for number in count(1):
            end = self._end(start)
            part = self._data[start:end]
            line = part.decode() if isinstance(part, bytes) else part
            if number > self._most or len(line) > _LONGEST_LINE:
                self._refuse(number, len(line))
            if line.strip():  # Tabs at its end part empty cells.
                yield number, line.rstrip(" \r")
            start = end + 1
            if start >= size:
                return

    def _end(self, start: int) -> int:
        end = self._data.find(b"\n", start) if isinstance(self._data, bytes) else self._data.find("\n", start)
        return len(self._data) if end < 0 else end

    def _refuse(self, number: int, length: int) -> NoReturn:
        wrong = (
            f"the text has more than {self._most} lines" if number > self._most else f"the line has {length} characters"
        )
        raise InvalidInputError(
            [*self.problems, Problem(f"{self.source}:{number}", wrong, "nothing is read from here", code="too-large")]
        )

    def add(self, number: int | None, message: str, hint: str = "", *, code: Code) -> None:
        """Note a problem of a line, or of the whole text."""
        place = self.source if number is None else f"{self.source}:{number}"
        self._report.note(Problem(place, message, hint, code))

    def raise_if_any(self) -> None:
        """Raise InvalidInputError with all problems, if there are any."""
        self._report.raise_if_any()


def within_themselves(above: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of which those above them go round in a circle."""
    for name in above:
        at, seen = name, set[str]()
        while at in above and at not in seen:
            seen.add(at)
            at = above[at]
        if at in seen:
            yield name


def whole(value: Decimal) -> int:
    """Return `value` to the nearest integer, halves up."""
    if value > _LARGEST:
        raise ValueError("more than 2^53 - 1")
    return int(value.to_integral_value(ROUND_HALF_UP))

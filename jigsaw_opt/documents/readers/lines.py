"""Line by line through a text, with every problem under the number of its line."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from itertools import count
from typing import NoReturn

from jigsaw_opt.documents.report import Report
from jigsaw_opt.errors import InvalidInputError, Problem

__all__ = ["Lines", "whole"]

_LARGEST = 2**53 - 1
_MOST_LINES = 1_000_000
_LONGEST_LINE = 100_000


class Lines:
    """The lines of a text that hold anything, and what is wrong with them.

    Parameters
    ----------
    data
        The text; bytes are UTF-8.
    source
        What the problems call the text: usually the name of its file.
    most
        The most lines that it may have.

    Raises
    ------
    InvalidInputError
        If bytes are not UTF-8.
    """

    def __init__(self, data: bytes | str, source: str, most: int = _MOST_LINES) -> None:
        self.source = source
        self._most = most
        self._report = Report()
        try:
            self._text = data.decode() if isinstance(data, bytes) else data
        except UnicodeDecodeError as error:
            raise InvalidInputError([Problem(source, f"not UTF-8: {error.reason} at byte {error.start}")]) from error

    @property
    def problems(self) -> list[Problem]:
        """What is wrong so far."""
        return self._report.problems

    def __iter__(self) -> Iterator[tuple[int, str]]:
        start = 0
        for number in count(1):
            end = self._text.find("\n", start)
            end = len(self._text) if end < 0 else end
            if number > self._most or end - start > _LONGEST_LINE:
                self._refuse(number, end - start)
            if line := self._text[start:end].rstrip():
                yield number, line
            start = end + 1
            if start > len(self._text):
                return

    def _refuse(self, number: int, length: int) -> NoReturn:
        wrong = (
            f"the text has more than {self._most} lines" if number > self._most else f"the line has {length} characters"
        )
        raise InvalidInputError(
            [*self.problems, Problem(f"{self.source}:{number}", wrong, "nothing is read from here")]
        )

    def add(self, number: int | None, message: str, hint: str = "") -> None:
        """Note a problem of line `number`, or of the whole text if that is None."""
        place = self.source if number is None else f"{self.source}:{number}"
        self._report.note(Problem(place, message, hint))

    def raise_if_any(self) -> None:
        """Raise InvalidInputError with all problems, if there are any."""
        self._report.raise_if_any()


def whole(value: Decimal) -> int:
    """`value` to the nearest integer, halves up.

    Raises
    ------
    ValueError
        If it is beyond what a document holds.
    """
    if value > _LARGEST:
        raise ValueError("more than 2^53 - 1")
    return int(value.to_integral_value(ROUND_HALF_UP))

"""Line by line through a text, with every problem under the number of its line."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal

from jigsaw_opt.errors import InvalidInputError, Problem

__all__ = ["Lines", "whole"]

_LARGEST = 2**53 - 1


class Lines:
    """The lines of a text that hold anything, and what is wrong with them.

    Parameters
    ----------
    data
        The text; bytes are UTF-8.
    source
        What the problems call the text: usually the name of its file.

    Raises
    ------
    InvalidInputError
        If bytes are not UTF-8.
    """

    def __init__(self, data: bytes | str, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        try:
            self._text = data.decode() if isinstance(data, bytes) else data
        except UnicodeDecodeError as error:
            raise InvalidInputError([Problem(source, f"not UTF-8: {error.reason} at byte {error.start}")]) from error

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self._text.split("\n"), 1):
            if line.strip():
                yield number, line.rstrip()

    def add(self, number: int | None, message: str, hint: str = "") -> None:
        """Note a problem of line `number`, or of the whole text if that is None."""
        place = self.source if number is None else f"{self.source}:{number}"
        self.problems.append(Problem(place, message, hint))

    def raise_if_any(self) -> None:
        """Raise InvalidInputError with all problems, if there are any."""
        if self.problems:
            raise InvalidInputError(self.problems)


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

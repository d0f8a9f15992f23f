"""Collecting every problem of a document, each with the path to its place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from jigsaw_opt.errors import Code, InvalidInputError, Problem
from jigsaw_opt.text import similar

__all__ = ["Place", "Report", "describe", "quoted"]

Place = str | tuple["Place", str | int]
"""The root as text, or a pair of the place of the parent and the key or index below it.

Built for every value but written out only for a problem, which keeps decoding fast."""

_LONGEST_QUOTE = 60
_MOST_PROBLEMS = 1000
_MOST_COMPARISONS = 10_000


class Report:
    """The problems found so far, up to a thousand: then the search for more stops, however long the input is."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._comparisons = _MOST_COMPARISONS

    def add(self, place: Place, message: str, hint: str = "", *, code: Code) -> None:
        """Note that what stands at `place` is wrong."""
        self.note(Problem(_path(place), message, hint, code))

    def note(self, problem: Problem) -> None:
        """Note a problem that has its path already; see `add` for the error."""
        if len(self.problems) == _MOST_PROBLEMS:
            told = f"nothing is looked at from here: {_MOST_PROBLEMS} problems are listed before"
            stopped = Problem(problem.path, told, code="too-many-problems")
            raise InvalidInputError([*self.problems, stopped])
        self.problems.append(problem)

    def add_misspelt(
        self, place: Place, message: str, word: str, options: Iterable[str], *, code: Code = "unknown-name"
    ) -> None:
        """Note a wrong `word`, with the most similar of `options` as the hint.

        Comparing words is slow, so only the first problems of a long list get a hint.
        """
        known = list(islice(options, self._comparisons + 1))
        hint = ""
        if len(known) <= self._comparisons:
            self._comparisons -= len(known)
            hint = _suggestion(word, known)
        self.add(place, message, hint, code=code)

    def include(self, problems: Iterable[Problem], place: Place) -> None:
        """Note the problems of a document of its own that stands at `place`."""
        for problem in problems:
            self.note(replace(problem, path=_path(place) + problem.path.removeprefix("$")))

    def raise_if_any(self) -> None:
        """Raise InvalidInputError with all problems, if there are any."""
        if self.problems:
            raise InvalidInputError(self.problems)


def quoted(text: str) -> str:
    """Return `text` between quotes, shortened to a readable length, printable whatever it holds."""
    shown = text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def describe(value: object) -> str:
    """Describe a value in the terms of JSON."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else "an integer of more than 30 digits"
    if isinstance(value, float):
        return "a number with a fraction or an exponent" if math.isfinite(value) else "a number that is not finite"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def _path(place: Place) -> str:
    steps: list[str] = []
    while not isinstance(place, str):
        place, key = place
        if isinstance(key, int):
            steps.append(f"[{key}]")
        else:
            plain = len(key) <= _LONGEST_QUOTE and key.isascii() and key.isidentifier()
            steps.append(f".{key}" if plain else f"[{quoted(key)}]")
    return place + "".join(reversed(steps))


def _suggestion(word: str, options: list[str]) -> str:
    near = similar(word, options)
    if near is not None:
        return f"did you mean {quoted(near)}?"
    return "known here: " + ", ".join(map(quoted, options)) if 0 < len(options) <= 8 else ""

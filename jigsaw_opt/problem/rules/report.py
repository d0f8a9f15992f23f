"""Every problem of a document with the path to its place, and looks at a tree whose structure may be broken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from jigsaw_opt.errors import Code, InvalidInputError, Problem
from jigsaw_opt.problem.rules.keyed import Keyed, NoKey
from jigsaw_opt.text import similar

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
    return "known here: " + ", ".join(map(quoted, sorted(options))) if 0 < len(options) <= 8 else ""


Names = dict[str, None]
"""Names in the order of the document."""


def list_at(holder: Any, key: str) -> list[Any]:
    """Return the list under a key, or an empty one; parts in it as documents have them."""
    found = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(found, tuple):  # as objects have them
        return [_seen(item) for item in found]
    return found if isinstance(found, list) else []


def dict_at(holder: Any, key: str) -> dict[str, Any]:
    """Return the object under a key, or an empty one; a part as documents have it."""
    found = _seen(holder.get(key)) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _seen(value: Any) -> Any:
    return value.keyed() if isinstance(value, Keyed) else value


def names_of(items: list[Any], place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every `name` among some objects, with its place."""
    for index, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str):
            yield ((place, index), "name"), name


def all_names(items: list[Any]) -> Names | None:
    """Return the names of some objects; None where one is not readable, for an unknown name may well mean it."""
    names = [name for _, name in names_of(items, "")]
    return dict.fromkeys(names) if items and len(names) == len(items) else None


def check_unique(named: Iterable[tuple[Place, str]], report: Report) -> None:
    """Report every name that stands there a second time."""
    seen: set[str] = set()
    for place, name in named:
        if name in seen:
            report.add(place, f"duplicate name {quoted(name)}", code="duplicate-name")
        seen.add(name)


Repeats: TypeAlias = dict[int, tuple[dict[str, Any], list[str]]]
"""Objects in which keys stand more than once, by their `id`, and these keys; the last value of each is kept."""


def report_oddities(tree: Any, report: Report, place: Place, repeats: Repeats | None = None) -> None:
    """Report duplicate keys, those in `repeats`, and strings with lone surrogates anywhere in a tree, but in parts."""
    for where, code, message in _oddities(tree, place, repeats or {}):
        report.add(where, message, code=code)


def _oddities(tree: Any, place: Place, repeats: Repeats) -> Iterator[tuple[Place, Code, str]]:
    """Yield duplicate keys and strings with lone surrogates anywhere in `tree`."""
    if isinstance(tree, str):
        if _has_lone_surrogate(tree):
            yield place, "not-text", "a string holds a lone surrogate, which is no character"
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            if _may_be_odd(item):
                yield from _oddities(item, (place, index), repeats)
    elif isinstance(tree, dict):
        for key in repeats[id(tree)][1] if id(tree) in repeats else ():
            yield (place, key), "duplicate-field", "duplicate key"
        for key, item in tree.items():
            if type(key) is NoKey:
                yield (place, key), "wrong-type", "a key must be a string"
            elif _has_lone_surrogate(key):
                yield (place, key), "not-text", "a key holds a lone surrogate, which is no character"
            if _may_be_odd(item):
                yield from _oddities(item, (place, key), repeats)


def _may_be_odd(item: Any) -> bool:
    return type(item) in (dict, list, tuple) or (type(item) is str and not item.isascii())


def _has_lone_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)

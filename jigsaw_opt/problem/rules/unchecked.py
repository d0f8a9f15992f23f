"""Looks at a tree whose structure may be broken, and at what Python lets a tree hold that no document can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from jigsaw_opt.errors import Code
from jigsaw_opt.problem.rules.keyed import Keyed, NoKey
from jigsaw_opt.problem.rules.report import Place, Report, quoted

__all__ = ["Names", "Repeats", "all_names", "check_unique", "dict_at", "list_at", "names_of", "report_oddities"]


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

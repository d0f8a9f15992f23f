"""Checks of what Python lets a tree hold and no document can: keys that stand twice, and lone surrogates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from jigsaw_opt.errors import Code
from jigsaw_opt.problem.rules.keyed import NoKey
from jigsaw_opt.problem.rules.report import Place, Report

__all__ = ["Repeats", "report_oddities"]

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

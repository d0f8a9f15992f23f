"""Regular expressions whose work grows faster than the text: found by what they are made of, not by a clock."""

from __future__ import annotations

import re._constants as code  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

ALL = frozenset(map(chr, range(256)))
_CATEGORIES = {
    code.CATEGORY_SPACE: frozenset(one for one in ALL if one.isspace()),
    code.CATEGORY_DIGIT: frozenset(one for one in ALL if one.isdecimal()),
    code.CATEGORY_WORD: frozenset(one for one in ALL if one.isalnum() or one == "_"),
}
_CATEGORIES |= {
    code.CATEGORY_NOT_SPACE: ALL - _CATEGORIES[code.CATEGORY_SPACE],
    code.CATEGORY_NOT_DIGIT: ALL - _CATEGORIES[code.CATEGORY_DIGIT],
    code.CATEGORY_NOT_WORD: ALL - _CATEGORIES[code.CATEGORY_WORD],
}
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_MANY = 1000
_MOST_PATHS = 20_000


class Atom(NamedTuple):
    """A part of a pattern: the characters that it may match, and whether it takes any number of them, or none."""

    characters: frozenset[str]
    unbounded: bool = False
    empty: bool = False


def _of_class(parts: Sequence[tuple[Any, Any]]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for kind, value in parts:
        if kind is code.LITERAL:
            found |= {chr(value)}
        elif kind is code.RANGE:
            found |= {one for one in ALL if value[0] <= ord(one) <= value[1]}
        elif kind is code.CATEGORY:
            found |= _CATEGORIES[value]
    return ALL - found if (code.NEGATE, None) in parts else found


def _paths(items: Sequence[tuple[Any, Any]], flags: int) -> list[list[Atom]]:
    """Return every way through a pattern, with each repeat once."""
    ways = [_ways(kind, value, flags) for kind, value in items]
    found = [[atom for part in path for atom in part] for path in product(*ways)]
    assert len(found) <= _MOST_PATHS
    return found


def _ways(kind: Any, value: Any, flags: int) -> list[list[Atom]]:
    if kind is code.LITERAL:
        return [[Atom(frozenset({chr(value)}))]]
    if kind is code.NOT_LITERAL:
        return [[Atom(ALL - {chr(value)})]]
    if kind is code.ANY:
        return [[Atom(ALL if flags & code.SRE_FLAG_DOTALL else ALL - {"\n"})]]
    if kind is code.IN:
        return [[Atom(_of_class(value))]]
    if kind is code.SUBPATTERN:
        return _paths(value[-1], flags)
    if kind is code.BRANCH:
        return [path for each in value[1] for path in _paths(each, flags)]
    if kind in _REPEATS:
        least, most, body = value
        inner = _paths(body, flags)
        if most < _MANY:
            return ([[]] if least == 0 else []) + inner
        characters = frozenset[str]().union(*(atom.characters for path in inner for atom in path))
        return [[Atom(characters, True, least == 0)]]
    if kind is code.AT and value in (code.AT_BEGINNING, code.AT_BEGINNING_STRING):
        return [[Atom(frozenset(), empty=True)]]
    return [[]]  # another place, as the end of a line or what stands behind


def _bodies(items: Sequence[tuple[Any, Any]], flags: int) -> Iterator[list[Atom]]:
    """Yield what an unbounded repeat of several characters does in two rounds."""
    for kind, value in items:
        if kind is code.SUBPATTERN:
            yield from _bodies(value[-1], flags)
        elif kind is code.BRANCH:
            for each in value[1]:
                yield from _bodies(each, flags)
        elif kind in _REPEATS:
            yield from _bodies(value[2], flags)
            if value[1] >= _MANY:
                inner = _paths(value[2], flags)
                yield from ([*one, *other] for one in inner for other in inner)


def _share_text(path: Sequence[Atom], whole: bool) -> bool:
    """Return whether two unbounded parts can take the same text, with all that is between them, and then fail."""
    for first, second in combinations((at for at, atom in enumerate(path) if atom.unbounded), 2):
        both = path[first].characters & path[second].characters
        may_fail = second + 1 < len(path) or not whole or path[second].characters != ALL
        between = path[first + 1 : second]
        if both and may_fail and all(atom.empty or atom.characters & both for atom in between):
            return True
    return False


def grows_faster_than_the_text(pattern: str | bytes, flags: int = 0) -> bool:
    """Return whether two unbounded repeats of a pattern can divide one text in many ways."""
    tree = parser.parse(pattern, flags)
    flags = tree.state.flags
    return any(_share_text(path, whole=True) for path in _paths(tree, flags)) or any(
        _share_text(path, whole=False) for path in _bodies(tree, flags)
    )


def begins_with_any_number(pattern: str | bytes, flags: int = 0) -> bool:
    """Return whether a pattern begins with an unbounded repeat, so that a search begins it at every place of a run."""
    tree = parser.parse(pattern, flags)
    paths = [path for path in _paths(tree, tree.state.flags) if path and path[0].unbounded]
    # Where nothing has to follow the run, it is taken whole, and the search goes on behind it.
    taken = {path[0].characters for path in paths if all(atom.empty for atom in path[1:])}
    return any(path[0].characters not in taken for path in paths)

"""Lists of nodes as Slurm writes them, as in ``gpu[01-03,07],login``."""

from __future__ import annotations

import re
from itertools import chain, product

MOST_NODES = 10**5
"""The most nodes that a list names; Slurm itself has no more than 65 533."""
_LIST = re.compile(r"(?:[^,\[\]\s]|\[[0-9,-]+\])+")
_PART = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def nodes_of(text: str) -> tuple[str, ...] | None:
    """Return the names of the nodes in a list, each once; None where the text is no such list."""
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _LIST.match(text, at)
        names = None if match is None else _expanded(match[0])
        if match is None or names is None or len(found) + len(names) > MOST_NODES:
            return None
        found += names
        at = match.end() + 1
        if at <= len(text) and text[at - 1] != ",":
            return None
    return tuple(dict.fromkeys(found)) if found and not text.endswith(",") else None


def _expanded(text: str) -> list[str] | None:
    """Return the names that a text with ranges in brackets stands for; None where a range is none."""
    pieces = _PART.split(text)
    counts = [_numbers(piece) for piece in pieces[1::2]]
    most, ranges = 1, []
    for numbers in counts:
        if numbers is None:
            return None
        most *= len(numbers)
        if most > MOST_NODES:
            return None
        ranges.append(numbers)
    return ["".join(chain(*zip(pieces[::2], (*numbers, ""), strict=True))) for numbers in product(*ranges)]


def _numbers(text: str) -> list[str] | None:
    """Return the numbers of ``01-03,07``."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MOST_NODES - len(found):
            return None
        found += (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    return found

"""The most valuable content of a bin, never underestimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["CELLS", "Content", "Item", "best_content"]

CELLS = 2**14
"""Sizes are counted in parts of one over this of the capacity, rounded down: a bin seems larger by so little."""
_MOST = 2**62
"""Values that 64 bits hold together."""


class Item(NamedTuple):
    """What may go into a bin.

    Parameters
    ----------
    value
        Of one copy.
    size
        Of one copy, at least 0.
    copies
        How many there are.
    head
        A bin that holds it has so much less capacity; of several heads the least one counts.
    """

    value: int
    size: int
    copies: int
    head: int


class Content(NamedTuple):
    """Value of the best content of a bin, or more, and its copies by the item's index."""

    value: int
    copies: dict[int, int]


def best_content(items: Sequence[Item], capacity: int) -> Content:
    """Most valuable copies that fit into a bin, by dynamic programming over rounded sizes.

    Every content whose sizes add up to at most ``capacity - least head`` also fits once all is rounded, so
    the value is an upper bound on that of each; it is exact where the capacity is at most `CELLS`.

    Parameters
    ----------
    items
        Of any value and size.
    capacity
        Of the bin, at least 0.
    """
    import numpy as np

    unit = -(-capacity // CELLS) or 1
    # With the latest heads first, all items so far fit into a bin that starts with the head of the last.
    order = sorted((k for k, item in enumerate(items) if item.value > 0), key=lambda k: -items[k].head)
    most = [min(item.copies, capacity // item.size) if item.size else item.copies for item in items]
    worth = sum(item.value * count for item, count in zip(items, most, strict=True))
    best = np.zeros(capacity // unit + 1, dtype=np.int64 if worth < _MOST else object)
    taken: list[tuple[int, int, int, np.ndarray[tuple[int], np.dtype[np.bool_]]]] = []
    found, at, steps = 0, 0, 0
    for k in order:
        item = items[k]
        size, room = item.size // unit, capacity - item.head
        for count in _portions(most[k]):
            shift = count * size
            if shift >= len(best):
                break
            better = best[: len(best) - shift] + count * item.value
            gain = better > best[shift:]
            best[shift:][gain] = better[gain]
            taken.append((k, count, shift, gain))
        if room >= 0 and best[room // unit] > found:
            found, at, steps = int(best[room // unit]), room // unit, len(taken)
    copies: dict[int, int] = {}
    for k, count, shift, gain in reversed(taken[:steps]):
        if at >= shift and gain[at - shift]:
            copies[k] = copies.get(k, 0) + count
            at -= shift
    return Content(found, copies)


def _portions(count: int) -> Iterator[int]:
    """Numbers that add up to `count`, such that every number up to it is a sum of some of them."""
    portion = 1
    while count > 0:
        yield min(portion, count)
        count -= portion
        portion *= 2

"""The most valuable pattern of a bin, never underestimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.costs import EXACT_IN_64_BITS

__all__ = ["CELLS", "Item", "Pattern", "best_pattern"]

CELLS = 2**14
"""Sizes are counted in parts of one over this of the capacity, rounded down: a bin seems larger by so little."""


class Item(NamedTuple):
    """Kind of item that may go into a bin.

    `size`: of one copy, at least 0. `head`: A bin that holds it has so much less capacity; of several heads the least
    one counts.
    """

    size: int
    copies: int
    head: int


class Pattern(NamedTuple):
    """Value of the best pattern of a bin, or more, and its copies by the item's index."""

    value: int
    copies: dict[int, int]


def best_pattern(items: Sequence[Item], values: Sequence[int], capacity: int) -> Pattern:
    """Return the most valuable copies that fit into a bin, by dynamic programming over rounded sizes.

    Every pattern whose sizes add up to at most ``capacity - least head`` also fits once all is rounded, so
    the value is an upper bound on that of each; it is exact where the capacity is at most `CELLS`.

    `capacity`: of the bin, at least 0.
    """
    import numpy as np

    # A capacity of 0 has one cell, too.
    unit = -(-capacity // CELLS) or 1
    # With the latest heads first, all items so far fit into a bin that starts with the head of the last.
    order = sorted((k for k, value in enumerate(values) if value > 0), key=lambda k: -items[k].head)
    # Each copy beyond the capacity would only add steps below.
    most = [min(item.copies, capacity // item.size) if item.size else item.copies for item in items]
    worth = sum(value * count for value, count in zip(values, most, strict=True))
    # No entry exceeds the value of all copies together; above 64 bits Python's integers take over.
    best = np.zeros(capacity // unit + 1, dtype=np.int64 if worth < EXACT_IN_64_BITS else object)
    taken: list[tuple[int, int, int, np.ndarray[tuple[int], np.dtype[np.bool_]]]] = []
    found, at, steps = 0, 0, 0
    for k in order:
        item = items[k]
        size, room = item.size // unit, capacity - item.head
        for count in _powers(most[k]):
            shift = count * size
            if shift >= len(best):
                break
            # The sums are a copy, made before any entry changes, so that each bundle is taken at most once.
            better = best[: len(best) - shift] + count * values[k]
            gain = better > best[shift:]
            best[shift:][gain] = better[gain]
            taken.append((k, count, shift, gain))
        if room >= 0 and best[room // unit] > found:
            # Later steps are of items with smaller heads, and none of this pattern.
            found, at, steps = int(best[room // unit]), room // unit, len(taken)
    copies: dict[int, int] = {}
    for k, count, shift, gain in reversed(taken[:steps]):
        if at >= shift and gain[at - shift]:
            copies[k] = copies.get(k, 0) + count
            at -= shift
    return Pattern(found, copies)


def _powers(count: int) -> Iterator[int]:
    """Yield numbers that add up to `count`, such that every number up to it is a sum of some of them."""
    # Binary splitting: n copies become about log2 n bundles.
    part = 1
    while count > 0:
        yield min(part, count)
        count -= part
        part *= 2

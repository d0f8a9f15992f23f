"""The load of a GPU or a link with the best head before it and the best tail behind it.

The greatest sum is a bound of the one-machine problem with heads and tails (Carlier, *The one-machine sequencing
problem*, European Journal of Operational Research 11, 1982). It is found as in the theta tree of Vilím (*O(n log n)
filtering algorithms for unary resource constraint*, CPAIOR 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf

Load = tuple[int, int, int]
"""Head, length and tail of an operation or of several, in microseconds."""

_CLASSES = 16
"""Number of classes of heads, and of tails, among which many operations are merged."""


def best_head_and_tail(operations: Sequence[Load]) -> tuple[int, int, int]:
    """Return the greatest sum of a head, a tail and all operations that have at least both, with that head and tail.

    Operations that exclude each other, none of which starts before its head or ends later than its tail before the
    end, take no less. Without an operation that has both, head and tail belong to different chains, and their sum
    proves nothing.

    `operations`: head, length and tail of each, at least one.
    """
    tails = sorted({tail for _, _, tail in operations})
    place = {tail: number for number, tail in enumerate(tails)}
    width = 1 << (len(tails) - 1).bit_length()
    # A binary tree over the tails: by node, the work of its operations so far, and the greatest sum of one of its tails
    # and the work of those of its operations that have at least that tail. Tails above those of all operations so far
    # do not count.
    work, best = [0] * (2 * width), [(-inf, 0)] * (2 * width)
    found, chosen = (-inf, 0, 0), 0
    for head, of_head in groupby(sorted(operations, reverse=True), key=lambda operation: operation[0]):
        for _, length, tail in of_head:
            work[width + place[tail]] += length
            choices = range(chosen, place[tail] + 1)
            chosen = max(chosen, choices.stop)
            for number in {*choices, place[tail]}:
                at = width + number
                best[at] = work[at] + tails[number], tails[number]
                while at > 1:
                    at //= 2
                    left, right = 2 * at, 2 * at + 1
                    work[at] = work[left] + work[right]
                    best[at] = max((best[left][0] + work[right], best[left][1]), best[right])
        total, tail = best[1]
        found = max(found, (head + total, head, tail))
    return int(found[0]), found[1], found[2]


def merged(operations: Iterable[Load]) -> list[Load]:
    """Return at most `_CLASSES` squared loads in place of many: similar ones together, with their least head and tail.

    A lower head or tail only lowers what `best_head_and_tail` finds, so that this still bounds.
    """
    loads = list(operations)
    if len(loads) <= _CLASSES**2:
        return loads
    steps = [max(load[part] for load in loads) // _CLASSES + 1 for part in (0, 2)]
    found: dict[tuple[int, int], Load] = {}
    for head, length, tail in loads:
        key = head // steps[0], tail // steps[1]
        least = found.get(key, (head, 0, tail))
        found[key] = min(head, least[0]), least[1] + length, min(tail, least[2])
    return list(found.values())

"""Exact integer costs that are not a model's own (specification: transfer)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

__all__ = ["EXACT_IN_64_BITS", "ceil_div", "ceil_fraction", "contributors", "lower_hull", "staircase", "transfer_us"]

EXACT_IN_64_BITS = 2**62
"""Numbers up to this, and sums of two of them, are integers of 64 bits."""


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the smallest integer that is at least ``numerator / denominator``."""
    return -(-numerator // denominator)


def transfer_us(payload_bytes: int, contributors: int, workers: int, rate: int, latency_us: int) -> int:
    """Return the duration of one bucket's exchange (specification: transfer).

    `contributors, workers`: ``c`` workers reduce, and all ``w`` workers receive the result; at least 1.
    """
    c, w = contributors, workers
    moved = payload_bytes * ((c - 1) * w + (w - 1) * c) * 10**6
    return ceil_div(moved, c * w * rate) + (c + w - 2) * latency_us


def staircase(depth: int, workers: int) -> tuple[int, ...]:
    """Return the levels of the staircase, ascending: ``ceil(D*k/w)`` for ``k = 1..w``."""
    return tuple(ceil_div(depth * k, workers) for k in range(1, workers + 1))


def ceil_fraction(value: Fraction) -> int:
    """Return the smallest integer that is at least `value`."""
    return ceil_div(value.numerator, value.denominator)


def contributors(levels: Sequence[int], bucket: int) -> int:
    """Count the levels that reach `bucket`."""
    return sum(level >= bucket for level in levels)


def lower_hull(points: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the corners of the lower convex hull of points whose first coordinates ascend."""
    corners: list[tuple[int, int]] = []
    for point in points:
        while len(corners) > 1 and _is_above(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return corners


def _is_above(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Return whether the middle point lies on or above the line through the others."""
    (a, f), (b, g), (c, h) = first, middle, last
    return (g - f) * (c - a) >= (h - f) * (b - a)

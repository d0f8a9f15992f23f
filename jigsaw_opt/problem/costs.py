"""Exact integer costs that are not a model's own, and the memory of a GPU (specification: transfer, memory)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.problem.compiled.operations import OperationGraph

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


def needed_bytes(workers: Iterable[tuple[int, int]]) -> int:
    """Return the bytes that a GPU needs for some workers.

    `workers`: for each the bytes of its state, and of its activations at its largest level.
    """
    states = largest = 0
    for state, activations in workers:
        states += state
        largest = max(largest, activations)
    return states + largest


def most_bytes(jobs: Iterable[OperationGraph]) -> int:
    """Return the bytes that a GPU needs at most for one worker of each job, whatever their levels."""
    return needed_bytes((job.state_bytes, job.activation_bytes[-1]) for job in jobs)


def levels_within(activation_bytes: Sequence[int], room: int) -> int:
    """Return the largest level whose activations fit into so many bytes, 0 for none."""
    return sum(size <= room for size in activation_bytes)


def deepest_level(job: OperationGraph, memory: int) -> int:
    """Return the largest level of a worker that is alone on a GPU with so much memory, 0 for none."""
    return levels_within(job.activation_bytes, memory - job.state_bytes)

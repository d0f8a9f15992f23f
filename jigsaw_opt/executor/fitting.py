"""Fitting costs to measured times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["fit_two", "isotonic"]


def fit_two(rows: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit ``time = x * first + y * second`` with the least sum of squared relative residuals, x and y at least 0.

    `rows`: first and second quantity, at least 0, and time, above 0; both quantities are above 0 somewhere.
    """
    scaled = [(first / time, second / time) for first, second, time in rows]
    aa, ab, bb = (sum(row[i] * row[j] for row in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in scaled), sum(row[1] for row in scaled)
    determinant = aa * bb - ab * ab
    # Where the normal equations have no solution above 0, the best one lies where one of the two is 0.
    if determinant > 1e-12 * aa * bb and a * bb >= b * ab and b * aa >= a * ab:
        return (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    return (a / aa, 0.0) if a * a * bb >= b * b * aa else (0.0, b / bb)


def isotonic(values: Sequence[float]) -> list[float]:
    """Return the sequence that never falls and is nearest to `values` in squares: neighbours that fall are pooled."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] * count > total * pools[-1][1]:
            below, many = pools.pop()
            total, count = total + below, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]

"""Fitting two costs to measured times."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["fit_two"]


def fit_two(rows: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit ``time = x * first + y * second`` with the least sum of squared relative residuals, x and y at least 0.

    Parameters
    ----------
    rows
        First and second quantity, at least 0, and time, above 0; both quantities are above 0 somewhere.
    """
    scaled = [(first / time, second / time) for first, second, time in rows]
    aa, ab, bb = (sum(row[i] * row[j] for row in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in scaled), sum(row[1] for row in scaled)
    determinant = aa * bb - ab * ab
    # Where the normal equations have no solution above 0, the best one lies where one of the two is 0.
    if determinant > 1e-12 * aa * bb and a * bb >= b * ab and b * aa >= a * ab:
        return (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    return (a / aa, 0.0) if a * a * bb >= b * b * aa else (0.0, b / bb)

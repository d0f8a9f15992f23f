"""What pairs of measurements say, and what chance alone would say as well."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bootstrap_interval", "holm", "sign_test"]

_DRAWS = 2000


def sign_test(less: int, more: int) -> float:
    """Return the p-value of the two-sided exact sign test.

    The chance that fair coins split ``less + more`` at least as unevenly.
    """
    total = less + more
    tail = sum(math.comb(total, k) for k in range(min(less, more) + 1))
    return min(1.0, float(2 * tail / 2**total))


def holm(chances: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values of several tests, in their order.

    Those of at most a level are significant, and with that chance at most any of them is so by chance alone.
    """
    adjusted, least = [1.0] * len(chances), 0.0
    for rank, k in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - rank) * chances[k]))
        adjusted[k] = least
    return adjusted


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % percentile-bootstrap interval of the mean, with fixed draws; None below two values."""
    import numpy as np

    if len(values) < 2:
        return None
    known, draw = np.array(values), np.random.default_rng(0)
    means = [known[draw.integers(len(known), size=len(known))].mean() for _ in range(_DRAWS)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)

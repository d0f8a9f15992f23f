"""Means over few runs, with how far chance may have moved them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import fmean, stdev

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t at 0.975 for 1, 2, ... degrees of freedom; the last one serves for all above, too wide."""


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and the half width of its 95 % confidence interval, infinite where there is one value only."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanInterval:
        """Return the interval of at least one value, by Student's t."""
        free = len(values) - 1
        if not free or not all(map(isfinite, values)):
            return cls(fmean(values), inf)
        return cls(fmean(values), _T_975[min(free, len(_T_975)) - 1] * stdev(values) / sqrt(len(values)))

    @classmethod
    def of_changes(cls, pairs: Sequence[tuple[float, float]]) -> MeanInterval | None:
        """Return the interval of the change of each pair, in per cent of the mean first value; None where that is 0."""
        scale = fmean(old for old, _ in pairs) if pairs else 0.0
        return cls.of([100 * (new - old) / scale for old, new in pairs]) if scale else None

    @property
    def clear(self) -> bool:
        """Whether 0 lies outside."""
        return abs(self.mean) > self.half

    def plain(self) -> dict[str, float | None]:
        """Return the mean, and both ends where there are any, as values of JSON."""
        known = isfinite(self.half)
        low, high = self.mean - self.half, self.mean + self.half
        return {"mean": self.mean, "low": low if known else None, "high": high if known else None}

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f}"

"""Speeds in exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["UNITS", "Speed", "rate_of"]

UNITS = 10**15
"""Units of work in an iteration."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a job.

    `rate`: units of work a microsecond, at least 1. `until`: work done, in units, from which on another speed holds and
    is asked for; None if this one holds to the end. `exchange`: share of the time, from 0 to 1, in which the job uses
    links between servers; contention stretches this part.
    """

    rate: int
    until: int | None = None
    exchange: float = 0.0

    def stretched(self, factor: float) -> Speed:
        """Return the speed where exchanges between servers take `factor` times as long."""
        if factor == 1.0 or self.exchange == 0.0:
            return self
        slower = max(1, round(self.rate / (1.0 + self.exchange * (factor - 1.0))))
        return Speed(slower, self.until, self.exchange)


def rate_of(iteration_us: int | float | Fraction) -> int:
    """Return units a microsecond, to the nearest one, of a job whose iterations take `iteration_us`."""
    return max(1, round(UNITS / iteration_us))

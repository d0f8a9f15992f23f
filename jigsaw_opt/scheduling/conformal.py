"""Intervals that hold as often as they say, whatever is wrong with the model behind them: conformal prediction.

How far values of the past lay outside of the intervals that were foretold for them tells how far the ends of the next
interval are to be moved: each by the quantile of its own errors (conformalised quantile regression: Romano, Patterson
and Candès, NeurIPS 2019), measured in units of how sure the model was (Papadopoulos, Gammerman and Vovk, ICAI 2008).
If the past and the next value could as well have come in another order, the interval holds with at least the
probability that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

__all__ = ["Foretold", "corrected"]


class Foretold(NamedTuple):
    """An interval of a model, and the unit in which its errors are measured: larger where the model is less sure."""

    low: float
    high: float
    unit: float


def corrected(foretold: Foretold, past: Sequence[tuple[Foretold, float]], share: float) -> tuple[float, float]:
    """Return the ends of an interval that holds with a probability of `share`.

    `past`: earlier intervals of the same model and probability, at least one, each with the true value.
    """
    rank = min(ceil((len(past) + 1) * (1 + share) / 2), len(past)) - 1
    early = sorted((one.low - value) / one.unit for one, value in past)[rank]
    late = sorted((value - one.high) / one.unit for one, value in past)[rank]
    low, high = foretold.low - early * foretold.unit, foretold.high + late * foretold.unit
    return (low, high) if low <= high else ((low + high) / 2,) * 2

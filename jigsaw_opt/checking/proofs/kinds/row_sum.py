"""Sum of rows about completion times, which all kinds of rows return."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple


class RowSum(NamedTuple):
    """Rows times their multipliers, added up: factors of completion times by job, and what the sum is at least."""

    factors: Mapping[str, int]
    least: Fraction

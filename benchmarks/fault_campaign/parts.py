"""All parts of the campaign, in the order in which they run."""

from __future__ import annotations

from . import changed, children, signals, sizes, solvers
from .contract import Part

__all__ = ["PARTS"]

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        changed.PART,
        solvers.SMALL,
        solvers.EXTREME,
        sizes.SIZES,
        sizes.LIMITS,
        signals.PART,
        children.PART,
    )
}

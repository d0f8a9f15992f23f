"""All parts of the campaign, in the order in which they run."""

from __future__ import annotations

from . import (
    cache,
    changed,
    children,
    forged,
    greedy_auto,
    kills,
    limits,
    names,
    outputs,
    phased,
    reading,
    signals,
    sizes,
    small,
    solvers,
    threads,
)
from .contract import Part

__all__ = ["PARTS"]

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        changed.PART,
        phased.PART,
        solvers.SMALL,
        solvers.EXTREME,
        greedy_auto.PART,
        sizes.SIZES,
        limits.PART,
        signals.PART,
        children.PART,
        outputs.PART,
        kills.PART,
        cache.PART,
        forged.PART,
        reading.PART,
        names.PART,
        small.PART,
        threads.PART,
    )
}

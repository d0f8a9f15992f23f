"""Closed sets of a graph: what may lie before a cut."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.clock import check_deadline

__all__ = ["closed_sets"]

_MOST_SETS = 60_000
"""Closed sets above which it is given up: what follows takes time by pairs of them, and memory by their number."""


def closed_sets(before: Sequence[int]) -> list[int]:
    """Return all sets that hold what comes before any of theirs, smaller ones first; sets are bits of a number."""
    found, layer = [0], {0}
    while layer:
        check_deadline()
        larger = set()
        for closed in layer:
            for at, earlier in enumerate(before):
                if not closed >> at & 1 and not earlier & ~closed:
                    larger.add(closed | 1 << at)
        found += sorted(larger)
        if len(found) > _MOST_SETS:
            raise UsageError(
                f"there are more than {_MOST_SETS} contiguous parts; merge branches of the graph first",
                code="too-large",
            )
        layer = larger
    return found

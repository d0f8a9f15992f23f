"""Which hierarchical assignment jobs are inserted by, and when to make another."""

from __future__ import annotations

from collections.abc import Callable

from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment

__all__ = ["Hierarchies"]


class Hierarchies:
    """The hierarchical assignment that is in use, and when to replace it.

    `make`: A new assignment, from its target and the longest that a job may take. `stop`: asked now and then; once it
    holds, nothing fits.
    """

    def __init__(self, make: Callable[[int, int], HierarchicalAssignment], stop: Callable[[], bool]) -> None:
        self._make, self._stop = make, stop
        self._hierarchy: HierarchicalAssignment | None = None
        self._ambitious, self._misfit = True, False

    def fitting(self, period: int, bound: int) -> HierarchicalAssignment | None:
        """Return an assignment of which all loads and all jobs are within a period; None where this one is not."""
        hierarchy, known = self._hierarchy, True
        if hierarchy is None or hierarchy.longest > period:
            hierarchy, known = self._make(bound, bound if self._ambitious else period), False
            hierarchy.anneal_all(self._stop)
        if hierarchy.fit(period, self._stop):
            self._hierarchy, self._misfit = hierarchy, False
            return hierarchy
        # It may still do for a longer period, but not time and again.
        self._misfit = known and not self._misfit
        self._hierarchy = hierarchy if self._misfit else None
        if not known:
            # Where servers that are fast enough even for the bound are too few, slower ones may do.
            self._ambitious = not self._ambitious
        return None

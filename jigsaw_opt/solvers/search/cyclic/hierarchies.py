"""One nesting after the other: which one to lay jobs by, and when to make another."""

from __future__ import annotations

from collections.abc import Callable

from jigsaw_opt.solvers.search.cyclic.hierarchy import Nesting

__all__ = ["Nestings"]


class Nestings:
    """The nesting at hand.

    Parameters
    ----------
    make
        A new nesting, from its target and the longest that a job may take.
    stop
        Asked now and then; once it holds, nothing fits.
    """

    def __init__(self, make: Callable[[int, int], Nesting], stop: Callable[[], bool]) -> None:
        self._make, self._stop = make, stop
        self._nesting: Nesting | None = None
        self._ambitious, self._misfit = True, False

    def fitting(self, period: int, bound: int) -> Nesting | None:
        """A nesting of which all loads and all jobs are within a period; None where this one did not get there.

        Parameters
        ----------
        period, bound
            In microseconds.
        """
        nesting, known = self._nesting, True
        if nesting is None or nesting.longest > period:
            nesting, known = self._make(bound, bound if self._ambitious else period), False
            nesting.settle(self._stop)
        if nesting.fit(period, self._stop):
            self._nesting, self._misfit = nesting, False
            return nesting
        # It may still do for a longer period, but not time and again.
        self._misfit = known and not self._misfit
        self._nesting = nesting if self._misfit else None
        if not known:
            # Where servers that are fast enough even for the bound are too few, slower ones may do.
            self._ambitious = not self._ambitious
        return None

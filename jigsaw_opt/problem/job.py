"""Jobs and their depth rules (specification: jobs, depth-rules)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Depth", "FreeDepth", "FullDepth", "Job", "StaircaseDepth"]


@dataclass(frozen=True, slots=True)
class FullDepth:
    """Every worker at level D in every iteration."""


@dataclass(frozen=True, slots=True)
class StaircaseDepth:
    """In every iteration the levels are ``ceil(D*k/w)`` for ``k = 1..w``; who takes which is free."""


@dataclass(frozen=True, slots=True)
class FreeDepth:
    """Any levels that keep gradient coverage, mean depth and balance.

    Parameters
    ----------
    min_contributors
        Least number of workers that reach each bucket in each iteration.
    mean_depth
        The least mean level as a share of D, as given: an integer, ``"3/5"``, or None for ``(w+1)/(2w)``.
    balance
        Largest difference between the level totals of two workers; None for no limit.
    """

    min_contributors: int = 1
    mean_depth: int | str | None = None
    balance: int | None = None

    def mean(self, workers: int) -> Fraction:
        """The least mean depth of a job of `workers` workers as an exact fraction."""
        if self.mean_depth is None:
            return Fraction(workers + 1, 2 * workers)
        return Fraction(self.mean_depth)


Depth = FullDepth | StaircaseDepth | FreeDepth


@dataclass(frozen=True, slots=True)
class Job:
    """A data-parallel training job.

    Parameters
    ----------
    name, model
        Its name and the name of its model.
    workers, iterations
        Number of workers ``w`` and of iterations ``n``.
    release_us
        Its first blocks start no earlier.
    weight
        Its weight in `weighted_completion`.
    depth
        Its depth rule.
    """

    name: str
    model: str
    workers: int
    iterations: int
    release_us: int = 0
    weight: int = 1
    depth: Depth = FullDepth()

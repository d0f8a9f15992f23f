"""What a relaxation gives: a value that no plan beats, and what proves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["Bound", "CompletionBound", "Deadlines"]

Deadlines = Callable[[int], Mapping[int, int]]
"""Latest ends of jobs, in microseconds by index, in plans whose objective is at most a limit."""


class Bound(NamedTuple):
    """A proven lower bound on the objective.

    Parameters
    ----------
    value
        The bound, in the unit of the objective.
    reason
        What proves it, in the user's terms.
    """

    value: int
    reason: str


class CompletionBound(NamedTuple):
    """A proven lower bound on the weighted sum of ends.

    Parameters
    ----------
    value, reason
        As of a `Bound`.
    deadlines
        What the proof says of single jobs.
    """

    value: int
    reason: str
    deadlines: Deadlines

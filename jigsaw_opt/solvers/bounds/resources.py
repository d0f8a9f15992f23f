"""What jobs ask of a resource, and what that says about the objective.

A resource is a set of GPUs or links that together give `capacity` units of work in a microsecond. What
follows holds even if work could be split, moved and interrupted at will.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Demand", "Resource", "WeightedJob", "WorkInterval"]


class WorkInterval(NamedTuple):
    """Work that each iteration of a job does in one go, at a constant rate at best.

    Parameters
    ----------
    rate, length
        Amount in a microsecond, and how many microseconds it takes.
    before, after
        Least time from the iteration's start to its start, and from its end to the iteration's end.
    """

    rate: int
    length: int
    before: int
    after: int

    @property
    def work(self) -> int:
        """Its amount."""
        return self.rate * self.length


class Demand(NamedTuple):
    """What one job asks of a resource.

    Parameters
    ----------
    head
        None of its work is before this moment, in microseconds.
    work
        Least amount of its work.
    tail
        All its work is at least so long before its end.
    offset
        Twice the sum over all its work of amount times least distance from its middle to the job's end.
    intervals
        Work that every iteration has.
    free_interval
        Most that one iteration counts beyond this, or None where there is no more.
    """

    head: int
    work: int
    tail: int
    offset: int
    intervals: tuple[WorkInterval, ...] = ()
    free_interval: WorkInterval | None = None

    def free_work(self, iterations: int) -> int:
        """Work beyond that of all intervals, which may lie in any of the iterations."""
        return self.work - iterations * sum(run.work for run in self.intervals)


class WeightedJob(NamedTuple):
    """A job with a weight, and its least end; its demand on the resource at hand, or None."""

    weight: int
    end: int
    demand: Demand | None


class Resource(NamedTuple):
    """A set of GPUs or links.

    Parameters
    ----------
    capacity
        Amount of work in a microsecond.
    demands
        What each job asks of it, None for nothing.
    reason
        What it is, in the user's terms.
    exclusive
        Whether it consists of as many units as its capacity, of which a job uses the same ones for all its intervals,
        as many as their rate, in their order and alone.
    """

    capacity: int
    demands: Sequence[Demand | None]
    reason: str
    exclusive: bool = False

"""What jobs ask of a resource: a set of GPUs or links that together do some units of work in a microsecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jigsaw_opt.problem.bound_proof import Argument


class WorkInterval(NamedTuple):
    """Work that each iteration of a job does in one go, at a constant rate at best.

    `rate, length`: amount in a microsecond, and how many microseconds it takes. `before, after`: least time from the
    iteration's start to its start, and from its end to the iteration's end.
    """

    rate: int
    length: int
    before: int
    after: int

    @property
    def work(self) -> int:
        """Return its amount of work."""
        return self.rate * self.length


class ResourceDemand(NamedTuple):
    """Demand of one job on a resource.

    `head`: none of its work is before this moment, in microseconds. `tail`: all its work is at least so long before its
    end. `offset`: mean-busy-time offset: twice the sum over all its work of amount times least distance from its middle
    to the job's end. `free_interval`: most free work that one iteration has room for, or None where there is none.
    """

    head: int
    work: int
    tail: int
    offset: int
    intervals: tuple[WorkInterval, ...] = ()
    free_interval: WorkInterval | None = None

    def free_work(self, iterations: int) -> int:
        """Return the work beyond that of all intervals, which may lie in any of the iterations."""
        return self.work - iterations * sum(interval.work for interval in self.intervals)


class WeightedJob(NamedTuple):
    """A job with a weight and a least completion time; its demand on the resource, or None."""

    weight: int
    completion: int
    demand: ResourceDemand | None


class Resource(NamedTuple):
    """A set of GPUs or links.

    `capacity`: amount of work in a microsecond. `demands`: what each job asks of it, None for nothing. `reason`: what
    it is, in the user's terms. `argument`: the same as the resource of an argument (docs/proofs.md), but for its
    capacity; None where there is none. `servers, links`: names of what it is made of; of a server, its GPUs.
    """

    capacity: int
    demands: Sequence[ResourceDemand | None]
    reason: str
    argument: Argument | None = None
    servers: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def fact(self) -> Argument | None:
        """Return the resource of an argument with its capacity; None where there is none."""
        return self.argument and {**self.argument, "capacity": self.capacity}

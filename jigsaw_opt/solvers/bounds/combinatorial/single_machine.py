"""A resource as one fast machine: what holds even if work could be split, moved and interrupted at will."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

from jigsaw_opt.problem.clock import look, looking
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.resources import Demand, Resource, WeightedJob

__all__ = ["least_makespan", "least_period", "least_weighted_completion"]

_UNIT = 2**24
"""Fractions are summed in parts of one over this, rounded down: exact sums would have endless denominators."""
_SCANS = 48
"""Number of times that the whole set of jobs is looked through for the best constraint."""


def least_period(resource: Resource) -> int:
    """All work of a period fits into it."""
    return ceil_div(sum(demand.work for demand in resource.demands if demand), resource.capacity)


def least_makespan(resource: Resource) -> int:
    """Makespan of Jackson's preemptive schedule on one machine as fast as the whole resource.

    It is the largest over all sets of jobs of least head + work / capacity + least tail (Carlier, 1982).
    """
    capacity = resource.capacity
    waiting = sorted((d.head * capacity, d.tail * capacity, d.work) for d in resource.demands if d and d.work)
    ready: list[list[int]] = []
    now = end = position = 0
    while position < len(waiting) or ready:
        look()
        if not ready:
            now = max(now, waiting[position][0])
        while position < len(waiting) and waiting[position][0] <= now:
            _, tail, work = waiting[position]
            heapq.heappush(ready, [-tail, work])
            position += 1
        first = ready[0]
        run = first[1] if position == len(waiting) else min(first[1], waiting[position][0] - now)
        now += run
        first[1] -= run
        if not first[1]:
            end = max(end, now - heapq.heappop(ready)[0])
    return ceil_div(end, capacity)


def least_weighted_completion(weighted_jobs: Sequence[WeightedJob], capacity: int) -> int:
    """Least sum of weighted ends by mean busy times, each end also at least the job's own.

    In units of ``2 * capacity``, the work of any set ``A`` of jobs, times its mean moment, is at least
    ``2 * capacity * head(A) * work(A) + work(A)**2``, and that of each job at least what its own end leaves.
    The prefixes of Smith's order, each with the best constraint found for it, are a solution of the dual of
    that linear program, so the sum is a lower bound whichever constraints are found; without own ends it is the
    bound of Eastman, Even and Isaacs (1964), and on one machine with one block a job it is Smith's rule itself.
    """
    ends = sum(
        weighted.weight * weighted.end for weighted in weighted_jobs if not (weighted.demand and weighted.demand.work)
    )
    jobs = [(weighted, weighted.demand) for weighted in weighted_jobs if weighted.demand and weighted.demand.work]
    jobs.sort(key=lambda job: Fraction(-job[0].weight, job[1].work))
    family = _Family(capacity, max(1, len(jobs) // _SCANS))
    total = before = 0
    for weighted, demand in looking(jobs):
        moment = family.extend(weighted, demand)
        numerator = weighted.weight * (moment - before + capacity * demand.offset)
        total += numerator * _UNIT // (2 * capacity * demand.work)
        before = moment
    return ends + ceil_div(total, _UNIT)


class _Family:
    """The best constraint found for a growing set of jobs: capacity holds a subset, own ends hold the others."""

    def __init__(self, capacity: int, every: int) -> None:
        self._capacity, self._every = capacity, every
        self._jobs: list[tuple[int, int, int, int]] = []  # least mean moment, work, its moment, head
        self._alone = 0
        self._held = (0, 0, 0, 0)  # gain, work, moment if alone, head of the subset

    def extend(self, weighted: WeightedJob, demand: Demand) -> int:
        """Take one more job; returns the least sum of work times mean moment, in units of ``2 * capacity``."""
        alone = self._capacity * (2 * demand.work * weighted.end - demand.offset)
        self._alone += alone
        self._jobs.append((alone // demand.work, demand.work, alone, demand.head))
        _, work, moment, head = self._held
        self._take(work + demand.work, moment + alone, min(head, demand.head) if work else demand.head)
        if len(self._jobs) % self._every == 0:
            self._scan()
        return self._alone + self._held[0]

    def _scan(self) -> None:
        """Try every set of the jobs whose own least moment is early."""
        self._jobs.sort()
        work, moment, head = 0, 0, self._jobs[0][3]
        for _, extra, alone, own_head in self._jobs:
            work, moment, head = work + extra, moment + alone, min(head, own_head)
            self._take(work, moment, head)

    def _take(self, work: int, moment: int, head: int) -> None:
        gain = 2 * self._capacity * head * work + work * work - moment
        if gain > self._held[0]:
            self._held = (gain, work, moment, head)

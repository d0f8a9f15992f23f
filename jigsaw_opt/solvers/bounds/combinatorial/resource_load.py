"""A resource as one machine as fast as all of it: what holds even if work could be split and moved at will."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from jigsaw_opt.problem.clock import check_deadline, checking_deadline
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundContext
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WeightedJob

_UNIT = 2**24
"""Fractions are summed in parts of one over this, rounded down: exact sums would have endless denominators."""
_SCANS = 48
"""Number of times that all jobs are looked through for the best constraint, so that time stays linear in their number.
"""


def resource_bounds(context: BoundContext, resources: Iterable[Resource], known: int) -> Iterator[Bound]:
    """Yield what resources prove above a known value, whatever the objective."""
    bound = _weighted_completion if context.operations.objective == "weighted_completion" else _length
    for resource in resources:
        found = bound(context, resource, known)
        if found is not None:
            known = found.value
            yield found


def _length(context: BoundContext, resource: Resource, known: int) -> Bound | None:
    """Return the bound that a resource gives on the makespan or the period, None where it is not above the known value.

    For the makespan it is head, work and tail of the critical set; for the period all work, without head and tail,
    since the work repeats.
    """
    finite = context.operations.horizon == "finite"
    asking = [(k, demand) for k, demand in enumerate(resource.demands) if demand]
    jobs = set(critical_set(resource)) if finite else {k for k, _ in asking}
    asking = [(k, demand) for k, demand in asking if k in jobs]
    head = min((demand.head for _, demand in asking), default=0) if finite else 0
    tail = min((demand.tail for _, demand in asking), default=0) if finite else 0
    value = head + ceil_div(sum(demand.work for _, demand in asking), resource.capacity) + tail
    if value <= known:
        return None
    names = tuple(context.operations.jobs[k].name for k, _ in asking)
    work = [Term("work", demand.work, jobs=(name,)) for name, (_, demand) in zip(names, asking)]
    terms = (Term("head", head), *work, Term("capacity", resource.capacity, ""), Term("tail", tail))
    arithmetic = f"{head} + ceil(({added(term.amount for term in work)}) / {resource.capacity}) + {tail} = {value}"
    return Bound(value, Proof(resource.reason, arithmetic, terms, names, resource.servers, resource.links))


def _weighted_completion(context: BoundContext, resource: Resource, known: int) -> Bound | None:
    weighted = [
        WeightedJob(data.job.weight, data.completion, demand)
        for data, demand in zip(context.job_data, resource.demands, strict=True)
    ]
    value, shares = least_weighted_completion(weighted, resource.capacity)
    if value <= known:
        return None
    names = tuple(data.job.name for data in context.job_data)
    shared = [Term("share of the sum", share, "weight * us", (name,)) for name, share in zip(names, shares)]
    terms = (*shared, Term("fractions of all shares", value - sum(shares), "weight * us"))
    arithmetic = f"{added(term.amount for term in terms)} = {value}"
    sentence = f"{resource.reason}, in Smith's order"
    return Bound(value, Proof(sentence, arithmetic, terms, names, resource.servers, resource.links))


def critical_set(resource: Resource) -> list[int]:
    """Return the jobs that decide the makespan of Jackson's preemptive schedule on one machine as fast as the resource.

    Of all sets of jobs it has the largest least head + work / capacity + least tail (Carlier, "The one-machine
    sequencing problem", 1982).
    """
    # Times are multiplied by the capacity, so that work counts as time and all numbers stay integers.
    scale, demands = resource.capacity, enumerate(resource.demands)
    waiting = sorted((d.head * scale, d.tail * scale, d.work, k) for k, d in demands if d and d.work)
    ready: list[list[int]] = []
    schedule: list[tuple[int, int, int, int]] = []  # start, end, tail and job of what runs without a break
    now = latest = last = position = 0
    while position < len(waiting) or ready:
        check_deadline()
        if not ready:
            now = max(now, waiting[position][0])
        while position < len(waiting) and waiting[position][0] <= now:
            _, tail, work, k = waiting[position]
            heapq.heappush(ready, [-tail, work, k])
            position += 1
        # Its work shrinks in place. The first entry of a heap stays first when it gets smaller.
        first = ready[0]
        length = first[1] if position == len(waiting) else min(first[1], waiting[position][0] - now)
        schedule.append((now, now + length, -first[0], first[2]))
        now += length
        first[1] -= length
        if not first[1] and now - heapq.heappop(ready)[0] > latest:
            latest, last = now - first[0], len(schedule)
    # Back from the job that ends last with its tail, up to a gap or to one with a smaller tail.
    jobs: dict[int, None] = {}
    start, tail = schedule[last - 1][1:3] if last else (0, 0)
    for begin, end, own_tail, k in reversed(schedule[:last]):
        if end != start or own_tail < tail:
            break
        start, jobs[k] = begin, None
    return sorted(jobs)


def least_weighted_completion(jobs: Sequence[WeightedJob], capacity: int) -> tuple[int, list[int]]:
    """Return the least sum of weighted completion times by mean busy times, and each job's share in it.

    In units of ``2 * capacity``, the work of any set ``A`` of jobs, times its mean busy time, is at least
    ``2 * capacity * head(A) * work(A) + work(A)**2``, and that of each job at least what its own completion leaves
    (Queyranne, "Structure of a simple scheduling polyhedron", 1993). The prefixes of Smith's order, each with the
    best constraint found for it, solve the dual of that linear program, so the sum is a lower bound whichever
    constraints are found. Without own completion times it is the bound of Eastman, Even and Isaacs (1964); on one
    machine with one block a job it is Smith's rule itself.

    The bound, rounded up; and each job's share in it, rounded down.

    `jobs`: weight, least completion time in microseconds, and demand of each job. `capacity`: amount of work that the
    resource does in a microsecond.
    """
    shares = [job.weight * job.completion * _UNIT for job in jobs]
    demands = [(k, demand) for k, job in enumerate(jobs) if (demand := job.demand) and demand.work]
    # Ratios are compared as exact fractions, since rounding could reverse two that are nearly equal.
    demands.sort(key=lambda each: Fraction(-jobs[each[0]].weight, each[1].work))
    family = _Family(capacity, max(1, len(demands) // _SCANS))
    before = 0
    for k, demand in checking_deadline(demands):
        moment = family.extend(jobs[k].completion, demand)
        # The dual gives each prefix the difference of two successive ratios of weight to work. Summed by parts, each
        # job has its own ratio times what it adds to the least moment.
        numerator = jobs[k].weight * (moment - before + capacity * demand.offset)
        shares[k] = numerator * _UNIT // (2 * capacity * demand.work)
        before = moment
    return ceil_div(sum(shares), _UNIT), [share // _UNIT for share in shares]


class _Family:
    """The best constraint found for a growing set of jobs: capacity holds a subset, own completion times the others."""

    def __init__(self, capacity: int, every: int) -> None:
        self._capacity, self._every = capacity, every
        self._jobs: list[tuple[int, int, int, int]] = []  # least mean busy time, work, their product, head
        self._alone = 0
        self._held = (0, 0, 0, 0)  # gain, work, its moment if alone, head of the subset

    def extend(self, completion: int, demand: ResourceDemand) -> int:
        """Take one more job; return the least sum of work times mean busy time, in units of ``2 * capacity``."""
        alone = self._capacity * (2 * demand.work * completion - demand.offset)
        self._alone += alone
        self._jobs.append((alone // demand.work, demand.work, alone, demand.head))
        _, work, moment, head = self._held
        self._take(work + demand.work, moment + alone, min(head, demand.head) if work else demand.head)
        if len(self._jobs) % self._every == 0:
            self._scan()
        return self._alone + self._held[0]

    def _scan(self) -> None:
        """Try every set of the jobs whose own least mean busy time is early."""
        self._jobs.sort()
        work, moment, head = 0, 0, self._jobs[0][3]
        for _, extra, alone, own_head in self._jobs:
            work, moment, head = work + extra, moment + alone, min(head, own_head)
            self._take(work, moment, head)

    def _take(self, work: int, moment: int, head: int) -> None:
        gain = 2 * self._capacity * head * work + work * work - moment
        # Of two that gain as much, each further job adds more to the one with more work: on one machine this keeps
        # every job from the first on, so that the bound is Smith's rule whenever scans take place.
        if (gain, work) > self._held[:2]:
            self._held = (gain, work, moment, head)

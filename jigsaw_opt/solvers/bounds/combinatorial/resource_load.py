"""A resource as one machine as fast as all of it: what holds even if work could be split and moved at will."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.clock import check_deadline, checking_deadline
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.arguments import NO_ARGUMENT, alike_jobs, completion_argument
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundContext
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WeightedJob

_MORE_BITS = 8
"""Multipliers are rounded down, which costs no more than one over two to this many bits of the bound's unit."""
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
    fields = ("head", "work", "tail") if finite else ("work",)
    demands = {name: demand for name, (_, demand) in zip(names, asking)}
    argument = _resource_argument(resource, demands, fields) if asking else NO_ARGUMENT
    proof = Proof(resource.reason, arithmetic, terms, names, resource.servers, resource.links, argument=argument)
    return Bound(value, proof)


def _resource_argument(
    resource: Resource, demands: Mapping[str, ResourceDemand], fields: Sequence[str]
) -> Argument | None:
    """Return what some jobs ask of a resource as part of an argument, or None where the resource is in none."""
    facts = {name: {field: getattr(demand, field) for field in fields} for name, demand in demands.items()}
    return resource.fact and {"kind": "load", "resource": resource.fact, "jobs": alike_jobs(facts)}


def _weighted_completion(context: BoundContext, resource: Resource, known: int) -> Bound | None:
    weighted = [
        WeightedJob(data.job.weight, data.completion, demand)
        for data, demand in zip(context.job_data, resource.demands, strict=True)
    ]
    alone, found = sum(job.weight * job.completion for job in weighted), least_waiting(weighted, resource.capacity)
    value = alone + ceil_div(found.amount, found.denominator)
    if value <= known:
        return None
    names = tuple(data.job.name for data in context.job_data)
    own = [
        Term("weighted completion time", job.weight * job.completion, "weight * us", (name,))
        for name, job in zip(names, weighted, strict=True)
    ]
    terms = (*own, Term("weighted waiting", value - alone, "weight * us"))
    arithmetic = f"{added(term.amount for term in own)} + ceil({found.amount} / {found.denominator}) = {value}"
    used = {k for sets in found.chains for more, _ in sets for k in more}
    demands = {names[k]: demand for k, demand in enumerate(resource.demands) if demand and k in used}
    load = _resource_argument(resource, demands, ("head", "work", "offset"))
    argument = None
    if load is not None:
        chains = [
            {"sets": [{"more": [names[k] for k in more], "multiplier": multiplier} for more, multiplier in sets]}
            for sets in found.chains
        ]
        scale, ends = found.denominator // (2 * resource.capacity), [data.completion for data in context.job_data]
        rows = [{**load, "chains": chains}] if chains else []
        argument = completion_argument(dict(zip(names, ends, strict=True)), scale, rows)
    sentence = f"{resource.reason}, in Smith's order"
    proof = Proof(sentence, arithmetic, terms, names, resource.servers, resource.links, argument=argument)
    return Bound(value, proof)


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


class Waiting(NamedTuple):
    """How much more jobs that share a resource need for their completion times than each of them alone.

    The amount of weight times microseconds is `amount / denominator`. `chains`: the sets of jobs whose constraints
    have multipliers, over `denominator` in units of twice the capacity. In a chain each set has the jobs of the one
    before it and more.
    """

    amount: int
    denominator: int
    chains: list[list[tuple[list[int], int]]]


def least_waiting(jobs: Sequence[WeightedJob], capacity: int) -> Waiting:
    """Return what mean busy times add to the least sum of weighted completion times.

    In units of ``2 * capacity``, the work of any set ``A`` of jobs, times its mean busy time, is at least
    ``2 * capacity * head(A) * work(A) + work(A)**2``, and that of each job at least what its own completion leaves
    (Queyranne, "Structure of a simple scheduling polyhedron", 1993). The prefixes of Smith's order, each with the
    best constraint found for it, solve the dual of that linear program: each has the difference of two successive
    ratios of weight to work as its multiplier. So it is a lower bound whichever constraints are found. Without own
    completion times it is the bound of Eastman, Even and Isaacs (1964); on one machine with one block a job it is
    Smith's rule itself.

    `jobs`: weight, least completion time in microseconds, and demand of each job. `capacity`: amount of work that the
    resource does in a microsecond.
    """
    order = [k for k, job in enumerate(jobs) if job.demand and job.demand.work and job.weight]
    demands = {k: demand for k in order if (demand := jobs[k].demand)}
    # Ratios are compared as exact fractions, since rounding could reverse two that are nearly equal.
    order.sort(key=lambda k: Fraction(-jobs[k].weight, demands[k].work))
    family = _Family(capacity, max(1, len(order) // _SCANS))
    gains = [family.extend(k, jobs[k].completion, demands[k]) for k in checking_deadline(order)]
    scale = 1 << (max(gains, default=0) // (2 * capacity)).bit_length() + _MORE_BITS
    ratios = [*(jobs[k].weight * scale // demands[k].work for k in order), 0]
    multipliers = [ratio - next_ratio for ratio, next_ratio in pairwise(ratios)]
    amount, chains, more = 0, list[list[tuple[list[int], int]]](), list[int]()
    for gain, multiplier, (added_jobs, fresh) in zip(gains, multipliers, family.changes, strict=True):
        amount += multiplier * gain
        if fresh:
            more = []
            chains.append([])
        more += added_jobs
        if multiplier and gain:
            if more or not chains[-1]:
                chains[-1].append((more, multiplier))
            else:
                chains[-1][-1] = (chains[-1][-1][0], chains[-1][-1][1] + multiplier)
            more = []
    return Waiting(amount, 2 * capacity * scale, [sets for sets in chains if sets])


class _Family:
    """The best constraint found for a growing set of jobs: capacity holds a subset, own completion times the others.

    `changes`: for each job that was taken, the jobs that came into the subset with it, and whether these are all of it.
    """

    def __init__(self, capacity: int, every: int) -> None:
        self._capacity, self._every = capacity, every
        self._jobs: list[tuple[int, int, int, int, int]] = []  # mean busy time alone, work, their product, head, job
        self._held = (0, 0, 0, 0)  # gain, work, its moment if alone, head of the subset
        self.changes: list[tuple[list[int], bool]] = []

    def extend(self, job: int, completion: int, demand: ResourceDemand) -> int:
        """Take one more job; return what capacity adds to work times mean busy time, in units of ``2 * capacity``."""
        alone = self._capacity * (2 * demand.work * completion - demand.offset)
        self._jobs.append((alone // demand.work, demand.work, alone, demand.head, job))
        _, work, moment, head = self._held
        first = not work
        grown = self._take(work + demand.work, moment + alone, demand.head if first else min(head, demand.head))
        self.changes.append(([job] if grown else [], grown and first))
        if len(self._jobs) % self._every == 0:
            self._scan()
        return self._held[0]

    def _scan(self) -> None:
        """Try every set of the jobs whose own least mean busy time is early."""
        self._jobs.sort()
        work, moment, head, best = 0, 0, self._jobs[0][3], 0
        for count, (_, extra, alone, own_head, _) in enumerate(self._jobs, 1):
            work, moment, head = work + extra, moment + alone, min(head, own_head)
            best = count if self._take(work, moment, head) else best
        if best:
            self.changes[-1] = [job for *_, job in self._jobs[:best]], True

    def _take(self, work: int, moment: int, head: int) -> bool:
        gain = 2 * self._capacity * head * work + work * work - moment
        # Of two that gain as much, each further job adds more to the one with more work: on one machine this keeps
        # every job from the first on, so that the bound is Smith's rule whenever scans take place.
        better = (gain, work) > self._held[:2]
        if better:
            self._held = (gain, work, moment, head)
        return better

"""Cutting planes from what a resource can do of the work of all jobs, iteration by iteration.

The work of a job on a resource is cut into *fragments*: some of its iterations each. A fragment has a head before which
none of it runs, and the job is complete at least its offset after the mean busy time of it. A resource of capacity
``m`` does the fragments ``A``, none before ``h``, with mean busy times of at least ``h W(A) + W(A)^2 / 2m`` in all,
weighted by work (Queyranne, 1993; with heads Goemans et al., 2002).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WorkInterval

_MOST_FRAGMENTS = 2_000
"""About the largest number of fragments of a resource; iterations are merged to keep within it, for each inequality is
found by a look at all fragments, once for each head."""
_MOST_HEADS = 64
"""Largest number of heads that sets of fragments may begin with; more of them are thinned out."""
_SLICES = 12
"""Parts of equal length that the work of one iteration is cut into: more are closer to the work, and take time."""
_ROUNDS = 200
"""Largest number of times that a program is solved for its cutting planes: the bound holds after each of them."""
_ROWS = 50
"""Largest number of inequalities that are added in a round: those that are violated most."""
_TOLERANCE = 1e-5
"""Inequalities that are broken by less, as a share of the latest end, are left alone."""
_STEP_WORK = 1e-7
"""Seconds for one fragment and head, or for one job and inequality."""


class WorkFragment(NamedTuple):
    """Some of the work of a job on a resource.

    `head`: none of it runs before this moment, in microseconds. `offset`: twice the sum of amount times least distance
    to the job's completion.
    """

    job: int
    head: int
    work: int
    offset: int


class LoadCuts:
    """The fragments of all jobs on one resource, and the cutting planes that they give."""

    def __init__(self, resource: Resource, job_data: Sequence[JobData]) -> None:
        self._capacity, self._reason = resource.capacity, resource.reason
        self._argument = resource.fact
        self._names = [data.job.name for data in job_data]
        pairs = enumerate(checking_deadline(zip(job_data, resource.demands, strict=True)))
        most = max(1, _MOST_FRAGMENTS // max(1, len(job_data)))
        self._fragments = [
            fragment
            for k, (data, demand) in pairs
            if demand is not None and demand.work
            for fragment in _fragments(k, data, demand, most)
            if fragment.work
        ]
        # A set has those of a job that lie earliest, and is told by their number.
        self._by_job: dict[int, list[WorkFragment]] = {}
        for fragment in sorted(self._fragments, key=lambda each: Fraction(-each.offset, each.work)):
            self._by_job.setdefault(fragment.job, []).append(fragment)
        self._heads = _thinned(sorted({fragment.head for fragment in self._fragments}), _MOST_HEADS)

    @property
    def steps(self) -> int:
        """Return the size of the search for a violated inequality."""
        return len(self._heads) * len(self._fragments)

    def violated(self, completions: Sequence[float], tolerance: float) -> Iterator[Inequality]:
        """Yield, for each head, the inequality that completion times violate most.

        Fragments with early mean busy times make the most of a set, so only sets that grow in this order are tried.

        `completions`: completion time of each job, in microseconds. `tolerance`: least violation that counts, in
        microseconds.
        """
        if not self._fragments:
            return
        import numpy as np

        # Floating point only selects the sets; their inequalities are added up in integers.
        jobs, heads, work, offsets = np.array(self._fragments, dtype=float).T
        moments = np.array(completions)[jobs.astype(int)] - offsets / (2 * work)
        order = np.argsort(moments, kind="stable")
        heads, work, weighted = heads[order], work[order], (work * moments)[order]
        for head in checking_deadline(self._heads):
            inside = heads >= head
            sums = np.cumsum(work * inside)
            gains = head * sums + sums * sums / (2 * self._capacity) - np.cumsum(weighted * inside)
            last = int(np.argmax(gains))
            if gains[last] > tolerance * sums[last]:
                chosen = order[: last + 1][inside[: last + 1]]
                yield self._inequality(head, Counter(self._fragments[k].job for k in chosen))

    def _inequality(self, least_head: int, counts: Mapping[int, int]) -> Inequality:
        """Return the inequality of a set of fragments, in integers: both sides count twice the capacity.

        `counts`: number of fragments by job, of those from the least head on.
        """
        fragments = [
            fragment
            for job, count in counts.items()
            for fragment in [each for each in self._by_job[job] if each.head >= least_head][:count]
        ]
        capacity, factors = self._capacity, dict[int, int]()
        for fragment in fragments:
            factors[fragment.job] = factors.get(fragment.job, 0) + 2 * capacity * fragment.work
        work = sum(fragment.work for fragment in fragments)
        head = min(fragment.head for fragment in fragments)
        least = 2 * capacity * head * work + work * work + capacity * sum(fragment.offset for fragment in fragments)
        found = {"head": least_head, "jobs": {self._names[job]: count for job, count in counts.items()}}
        return Inequality(factors, least, self._reason, fragments=(self._argument, found) if self._argument else None)


def _fragments(job: int, data: JobData, demand: ResourceDemand, most: int) -> Iterator[WorkFragment]:
    """Yield the work that every iteration has, and the work that the rule allows in any of them."""
    n, length, release = data.job.iterations, data.job_class.iteration, data.job.release_us
    # Iterations fall into parts of nearly equal size, and each part becomes one fragment.
    cuts = [n * k // min(n, most) for k in range(min(n, most) + 1)]
    for first, last in pairwise(cuts):
        count = last - first
        for interval in demand.intervals:
            # The mean of several iterations is in their middle.
            later = length * (2 * n - first - last - 1)
            for work, before, twice_after in _slices(interval) if count == 1 else [_whole(interval)]:
                offset = count * work * (twice_after + later)
                yield WorkFragment(job, release + first * length + before, count * work, offset)
        yield from _free_fragments(job, data, demand, first, last)


def _free_fragments(job: int, data: JobData, demand: ResourceDemand, first: int, last: int) -> Iterator[WorkFragment]:
    """Yield the free work beyond the last `first` iterations' worth, up to that of the last `last` ones.

    Ordered by time, the last iterations have no room for more, so what is before is further from the end.
    """
    length, free_work = data.job_class.iteration, demand.free_work(data.job.iterations)
    room = demand.free_interval.work if demand.free_interval else 0
    amount = min(free_work, last * room) - first * room
    if amount > 0:
        # Counted from the end, iterations `first` to `first + full - 1` are full, and the next one has the rest.
        full, rest = divmod(amount, room)
        offset = length * (room * full * (2 * first + full - 1) + 2 * rest * (first + full)) + 2 * demand.tail * amount
        # What is earlier fills at least so many whole iterations from the release on.
        before = (free_work - first * room - amount) // room
        yield WorkFragment(job, demand.head + before * length, amount, offset)


def _whole(interval: WorkInterval) -> tuple[int, int, int]:
    return interval.work, interval.before, 2 * interval.after + interval.length


def _slices(interval: WorkInterval) -> Iterator[tuple[int, int, int]]:
    """Yield parts of an interval: work, least start, and twice the distance of its middle from the end."""
    count = min(_SLICES, interval.length)
    for start, end in pairwise(interval.length * k // count for k in range(count + 1)) if count else ():
        twice_after = 2 * (interval.after + interval.length) - start - end
        yield interval.rate * (end - start), interval.before + start, twice_after


def _thinned(values: Sequence[int], most: int) -> list[int]:
    step = -(-len(values) // most) if values else 1
    return list(values[::step])


def cut_rounds(program: CompletionProgram, cuts: Sequence[LoadCuts], budget: BoundBudget) -> Iterator[None]:
    """Add the cutting planes that a solved program violates most, and solve it again, until it violates hardly any.

    Yields after every round.
    """
    for _ in range(_ROUNDS):
        tolerance = _TOLERANCE * max(program.completions)
        found = [row for each in cuts for row in each.violated(program.completions, tolerance)]
        budget.charge(_STEP_WORK * (sum(each.steps for each in cuts) + len(program.rows) * len(program.completions)))
        if not found or budget.spent:
            return
        found.sort(key=lambda row: -row.violation(program.completions))
        for row in checking_deadline(found[:_ROWS]):
            program.add(row)
        program.solve()
        yield

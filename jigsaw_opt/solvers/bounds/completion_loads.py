"""Inequalities between ends of jobs from what a resource can do, iteration by iteration.

The work of a job on a resource is cut into *portions*: some of its iterations each. A portion has a head before which
none of it runs, and the job ends at least its lag after the mean moment of it. A resource of
capacity ``m`` does the portions ``A``, none before ``h``, with mean moments of at least
``h W(A) + W(A)^2 / 2m`` in all, weighted by work (Queyranne, 1993; with heads Goemans et al., 2002).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.problem.clock import looking
from jigsaw_opt.solvers.bounds.completion_program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.demand import Demand, Resource, Run
from jigsaw_opt.solvers.bounds.facts import Facts
from jigsaw_opt.solvers.bounds.strong.budget import Budget

__all__ = ["Load", "Portion", "rounds"]

_MOST_PORTIONS = 2_000
"""Iterations are taken together so that a resource has at most about so many portions."""
_MOST_HEADS = 64
"""Heads that the sets of portions may begin with; a larger number is thinned out."""
_SLICES = 12
"""Parts of equal length that the work of one iteration is cut into."""
_ROUNDS = 200
"""Most times that a program is solved for the inequalities of loads."""
_ROWS = 50
"""Most inequalities that are added in a round; the ones that are broken most."""
_TOLERANCE = 1e-5
"""Inequalities that are broken by less, as a share of the latest end, are left alone."""
_STEP_WORK = 1e-7
"""Seconds for one portion and head, or for one job and inequality."""


class Portion(NamedTuple):
    """Some of the work of a job on a resource.

    Parameters
    ----------
    job
        Index of the job.
    head
        None of it runs before this moment, in microseconds.
    work
        Its amount.
    lag
        Twice the sum of amount times least distance to the job's end.
    """

    job: int
    head: int
    work: int
    lag: int


class Load:
    """The portions of all jobs on one resource.

    Parameters
    ----------
    resource
        Capacity and demands.
    facts
        The jobs.
    """

    def __init__(self, resource: Resource, facts: Sequence[Facts]) -> None:
        self._capacity, self._reason = resource.capacity, resource.reason
        claims = [(k, fact, demand) for k, (fact, demand) in enumerate(zip(facts, resource.demands, strict=True))]
        pieces = max(1, _MOST_PORTIONS // max(1, len(claims)))
        self._portions = [
            portion
            for k, fact, demand in looking(claims)
            if demand is not None and demand.work
            for portion in _portions(k, fact, demand, pieces)
            if portion.work
        ]
        self._heads = _thinned(sorted({portion.head for portion in self._portions}), _MOST_HEADS)

    @property
    def steps(self) -> int:
        """Size of the search for a violated inequality."""
        return len(self._heads) * len(self._portions)

    def violated(self, ends: Sequence[float], tolerance: float) -> Iterator[Inequality]:
        """For each head, the inequality that the ends of the jobs break most, if they do by `tolerance` microseconds.

        Portions with early moments make the most of a set, so only the sets that grow in this order are looked at.
        """
        if not self._portions:
            return
        import numpy as np

        jobs, heads, work, lags = np.array(self._portions, dtype=float).T
        moments = np.array(ends)[jobs.astype(int)] - lags / (2 * work)
        order = np.argsort(moments, kind="stable")
        heads, work, weighted = heads[order], work[order], (work * moments)[order]
        for head in looking(self._heads):
            inside = heads >= head
            sums = np.cumsum(work * inside)
            gains = head * sums + sums * sums / (2 * self._capacity) - np.cumsum(weighted * inside)
            last = int(np.argmax(gains))
            if gains[last] > tolerance * sums[last]:
                yield self._inequality([self._portions[k] for k in order[: last + 1][inside[: last + 1]]])

    def _inequality(self, portions: Sequence[Portion]) -> Inequality:
        """In units of twice the capacity, all integers."""
        capacity, factors = self._capacity, dict[int, int]()
        for portion in portions:
            factors[portion.job] = factors.get(portion.job, 0) + 2 * capacity * portion.work
        work = sum(portion.work for portion in portions)
        head = min(portion.head for portion in portions)
        least = 2 * capacity * head * work + work * work + capacity * sum(portion.lag for portion in portions)
        return Inequality(factors, least, self._reason)


def _portions(job: int, fact: Facts, demand: Demand, pieces: int) -> Iterator[Portion]:
    """What every iteration has, and the surplus that the rule leaves free to lie in any of them."""
    n, length, release = fact.job.iterations, fact.shape.iteration, fact.job.release_us
    cuts = [n * k // min(n, pieces) for k in range(min(n, pieces) + 1)]
    for first, last in pairwise(cuts):
        count = last - first
        for run in demand.runs:
            # The mean of several iterations is in their middle.
            later = length * (2 * n - first - last - 1)
            for work, before, twice_after in _slices(run) if count == 1 else [_whole(run)]:
                lag = count * work * (twice_after + later)
                yield Portion(job, release + first * length + before, count * work, lag)
        yield from _surplus(job, fact, demand, first, last)


def _surplus(job: int, fact: Facts, demand: Demand, first: int, last: int) -> Iterator[Portion]:
    """The surplus that is not among the last `first` iterations' worth but among the last `last` ones'.

    Ordered by time, the last iterations have no room for more, so what is before is further from the end.
    """
    length, surplus = fact.shape.iteration, demand.surplus(fact.job.iterations)
    room = demand.spare.work if demand.spare else 0
    amount = min(surplus, last * room) - first * room
    if amount > 0:
        full, rest = divmod(amount, room)
        lag = length * (room * full * (2 * first + full - 1) + 2 * rest * (first + full)) + 2 * demand.tail * amount
        before = (surplus - first * room - amount) // room
        yield Portion(job, demand.head + before * length, amount, lag)


def _whole(run: Run) -> tuple[int, int, int]:
    return run.work, run.before, 2 * run.after + run.length


def _slices(run: Run) -> Iterator[tuple[int, int, int]]:
    """Parts of a run, each with its work, least start, and twice the distance of its middle from the end."""
    count = min(_SLICES, run.length)
    for start, end in pairwise(run.length * k // count for k in range(count + 1)) if count else ():
        yield run.rate * (end - start), run.before + start, 2 * (run.after + run.length) - start - end


def _thinned(values: Sequence[int], most: int) -> list[int]:
    step = -(-len(values) // most) if values else 1
    return list(values[::step])


def rounds(program: CompletionProgram, loads: Sequence[Load], budget: Budget) -> Iterator[None]:
    """Add the inequalities that the ends of a solved program break most and solve again, until hardly any are broken.

    Yields after every round.
    """
    for _ in range(_ROUNDS):
        tolerance = _TOLERANCE * max(program.ends)
        found = [row for load in loads for row in load.violated(program.ends, tolerance)]
        budget.pay(_STEP_WORK * (sum(load.steps for load in loads) + len(program.rows) * len(program.ends)))
        if not found or budget.spent:
            return
        found.sort(key=lambda row: -row.violation(program.ends))
        for row in looking(found[:_ROWS]):
            program.add(row)
        program.solve()
        yield

"""Two jobs whose transfers exclude each other: all pairs of ends that are worth having.

Each job is a chain of transfers with the least times between them, and the order in which the two chains merge is all
that is left to decide. The states of that are pairs of numbers of transfers done; a state keeps the
*labels* that none other beats in every respect, as in a shortest path with several costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.problem.costs import lower_hull
from jigsaw_opt.solvers.bounds.completion_program import Inequality
from jigsaw_opt.solvers.bounds.demand import Run
from jigsaw_opt.solvers.bounds.facts import Facts

__all__ = ["Chain", "pair_inequalities"]

_MOST_STATES = 2_500
"""Chains with more pairs of transfers are not merged."""
_MOST_LABELS = 200
"""From so many labels on, neighbours in a state are merged into one that is no worse than either."""

Label = tuple[int, int, int, int, int]
"""Start of the iteration and end of the last transfer of one job, the same of the other, and end of the last of all."""


class Chain(NamedTuple):
    """A job as its transfers one after the other.

    Parameters
    ----------
    release, iterations, length
        Moment before which nothing starts, number of iterations, and least length of one, in microseconds.
    runs
        Transfers of an iteration.
    """

    release: int
    iterations: int
    length: int
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, fact: Facts, runs: Sequence[Run]) -> Chain:
        """Chain of a job with the given runs in each iteration."""
        return cls(fact.job.release_us, fact.job.iterations, fact.shape.iteration, tuple(runs))

    @property
    def steps(self) -> int:
        """Number of transfers in all."""
        return self.iterations * len(self.runs)

    def step(self, done: int, began: int, ended: int, free: int) -> tuple[int, int, int]:
        """Do the next transfer as early as can be.

        Parameters
        ----------
        done
            Number of transfers done.
        began, ended
            Start of the iteration, end of the last transfer.
        free
            Moment from which no transfer of the other job is in the way.
        """
        run = self.runs[done % len(self.runs)]
        start = max(ended, began + run.before)
        if run.length:
            start = max(start, free)
            free = start + run.length
        end = start + run.length
        if (done + 1) % len(self.runs):
            return began, end, free
        barrier = max(end, began + self.length)
        return barrier, barrier, free


def pair_inequalities(jobs: tuple[int, int], one: Chain, other: Chain, reason: str) -> Iterator[Inequality]:
    """Inequalities between the ends of two jobs, from the lower convex hull of all pairs of ends.

    Parameters
    ----------
    jobs
        Their indices.
    one, other
        Their chains.
    reason
        What makes them exclude each other.
    """
    if not 0 < one.steps * other.steps <= _MOST_STATES:
        return
    first, second = jobs
    hull = lower_hull(_ends(one, other))
    yield Inequality({first: 1}, hull[0][0], reason)
    yield Inequality({second: 1}, hull[-1][1], reason)
    for (x, y), (later, earlier) in pairwise(hull):
        rise, run = y - earlier, later - x
        yield Inequality({first: rise, second: run}, rise * x + run * y, reason)


def _ends(one: Chain, other: Chain) -> list[tuple[int, int]]:
    """Ends of both jobs in all schedules that no other beats, by ascending first and descending second end."""
    row: list[list[Label]] = []
    for i in range(one.steps + 1):
        before, row = row, []
        for k in range(other.steps + 1):
            labels = {(one.release, one.release, other.release, other.release, 0)} if i == k == 0 else set()
            if i:
                labels.update(_after_first(one, i - 1, label) for label in before[k])
            if k:
                labels.update(_after_second(other, k - 1, label) for label in row[k - 1])
            row.append(_unbeaten(labels))
    ends: list[tuple[int, int]] = []
    for x, y in sorted((x, y) for _, x, _, y, _ in row[-1]):
        if not ends or y < ends[-1][1]:
            ends.append((x, y))
    return ends


def _after_first(chain: Chain, done: int, label: Label) -> Label:
    began, ended, b, y, free = label
    began, ended, free = chain.step(done, began, ended, free)
    return began, ended, b, y, free


def _after_second(chain: Chain, done: int, label: Label) -> Label:
    a, x, began, ended, free = label
    return a, x, *chain.step(done, began, ended, free)


def _unbeaten(labels: set[Label]) -> list[Label]:
    """Those that no other is at most as large as in every respect; merged in pairs where they are too many."""
    kept: list[Label] = []
    for label in sorted(labels):
        _, x, b, y, free = label
        if not any(q <= x and r <= b and s <= y and t <= free for _, q, r, s, t in kept):
            kept.append(label)
    while len(kept) > _MOST_LABELS:
        kept = [_merged(kept[k : k + 2]) for k in range(0, len(kept), 2)]
    return kept


def _merged(labels: Sequence[Label]) -> Label:
    began, ended, other_began, other_ended, free = (min(values) for values in zip(*labels, strict=True))
    return began, ended, other_began, other_ended, free

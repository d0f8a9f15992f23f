"""Policies that every group is tried with, and phases of jobs that begin in a given order.

In a given order a job waits for those before it, and for memory where it needs that.

A policy that lets no GPU idle while a job could run misses plans: where two jobs do not fit into memory together, the
urgent one may have to go first although it is released later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from typing import TypeAlias

from jigsaw_opt.problem.plan import Phase, Plan
from jigsaw_opt.solvers.phased.phases import Gpus, Jobs, PhasePolicy, Timing, phases_of
from jigsaw_opt.solvers.phased.shelves import iteration_counts
from jigsaw_opt.solvers.phased.timer import UntimedError

_Value: TypeAlias = tuple[int, int]

_TRIED = 20
"""Orders that are tried, for each job of a group."""
_SHARE = 0.2
"""Share of the time that is left for them."""
_MOST_BESIDE = 8
"""Jobs of a group up to which it is found out who fits into memory beside whom: each set takes a cyclic plan."""


def ordered_policies(
    jobs: Jobs,
    gpus: Gpus,
    timing: Timing,
    ratio: Callable[[Mapping[str, int]], dict[str, int]],
    orders: Sequence[Sequence[str]],
    value: Callable[[Sequence[Phase]], _Value],
    deadline: Callable[[float], Callable[[], bool]],
) -> Iterator[PhasePolicy]:
    """Yield policies that keep an order of the jobs, each better than those before: alone, and beside what fits.

    Local search takes one job of the order to another place, as long as that helps.

    `jobs`: the jobs of the group by name. `deadline`: makes a function that tells whether a share of the time that is
    left now is over.
    """
    stop = deadline(_SHARE)
    fitting: dict[frozenset[str], bool] = {}

    def fits(name: str, running: Sequence[str]) -> bool:
        together = frozenset([name, *running])
        if together not in fitting:
            fitting[together] = False
            with suppress(UntimedError):
                timing(dict.fromkeys([one for one in jobs if one in together], 1), gpus)
                fitting[together] = True
        return fitting[together]

    ways = (_never, fits) if len(jobs) <= _MOST_BESIDE else (_never,)
    for admits in ways:
        best: tuple[_Value, list[str]] | None = None
        known: set[tuple[str, ...]] = set()
        moves: Iterator[list[str]] = iter([list(order) for order in orders])
        while len(known) < _TRIED * len(jobs) and not stop():
            order = next(moves, None)
            if order is None:
                break
            if tuple(order) in known:
                continue
            known.add(tuple(order))
            policy = PhasePolicy(order, admits, ratio, gpus, waits=True)
            try:
                found = value(phases_of(jobs, policy, timing))
            except UntimedError:  # Jobs that fit together at one ratio may not do so at another.
                continue
            if best is None or found < best[0]:
                best = found, order
                # What is left of the first orders comes before moves of the best one.
                moves = chain(moves, _moved(order)) if len(known) <= len(orders) else _moved(order)
                yield policy


def _moved(order: Sequence[str]) -> Iterator[list[str]]:
    """Yield the order with one job at another place, next places first."""
    for by in range(1, len(order)):
        for at in range(len(order) - by):
            for one, to in ((at, at + by), (at + by, at)):
                after = list(order)
                after.insert(to, after.pop(one))
                yield after


_Ratio: TypeAlias = Callable[[Mapping[str, int]], dict[str, int]]
_MOST_AT_OWN_SPEED = 8
"""Iterations of a fast job in a period of slow ones."""


def policies(
    jobs: Jobs,
    shelves: Sequence[Plan],
    timing: Timing,
    value: Callable[[Sequence[Phase]], tuple[int, int]],
    deadline: Callable[[float], Callable[[], bool]],
) -> Iterator[PhasePolicy]:
    """Yield policies that run the jobs of a group.

    Whole shelves in turn; as many jobs as have GPUs of their own, at their own speeds as far as they can; and jobs that
    wait for those before them in the best order that is found.

    `jobs`: the jobs of the group by name, each in one shelf. `shelves`: cyclic plans that say which jobs fit into
    memory together, and where they are.
    """
    shelf_of = {job.name: number for number, shelf in enumerate(shelves) for job in shelf.jobs if job.name in jobs}
    places = {job.name: job.gpus for shelf in shelves for job in shelf.jobs if job.name in jobs}
    gpus = {name: frozenset(own) for name, own in places.items()}

    def same_shelf(name: str, running: Sequence[str]) -> bool:
        return shelf_of[name] == shelf_of[running[0]]

    def apart(name: str, running: Sequence[str]) -> bool:
        return all(gpus[name].isdisjoint(gpus[other]) for other in running)

    placed = {job.name: len(job.iterations) for shelf in shelves for job in shelf.jobs if job.name in jobs}
    by_shelf = sorted(jobs, key=shelf_of.__getitem__)
    # The first policy begins with the cyclic plans of the shelves, which are known, so that a first plan takes little
    # time.
    yield PhasePolicy(by_shelf, same_shelf, _as_placed(placed), places)
    if len(jobs) == 1:
        return
    alone_us = {name: timing({name: 1}, places).objective for name in jobs}
    total_us = {name: alone_us[name] * job.iterations for name, job in jobs.items()}
    # Smith's rule: on one machine, least time per weight first is optimal for weighted completion times.
    by_ratio = sorted(jobs, key=lambda name: total_us[name] / jobs[name].weight)
    yield PhasePolicy(by_ratio, apart, _own_ratio(alone_us), places)
    if len(set(shelf_of.values())) == 1 and not any(job.release_us or job.deadline_us for job in jobs.values()):
        return  # They run together from the beginning, and nobody gains by waiting.
    by_release = sorted(jobs, key=lambda name: (jobs[name].release_us, total_us[name] / jobs[name].weight))
    longest_first = sorted(jobs, key=lambda name: -total_us[name])
    by_deadline = sorted(by_release, key=lambda name: jobs[name].deadline_us or inf)
    orders = (by_deadline, by_release, by_ratio, longest_first)
    yield from ordered_policies(jobs, places, timing, _ending_together, orders, value, deadline)


def _never(name: str, running: Sequence[str]) -> bool:
    return False


def _ending_together(remaining: Mapping[str, int]) -> dict[str, int]:
    return {name: min(count, remaining[name]) for name, count in iteration_counts(remaining).items()}


def _as_placed(placed: Mapping[str, int]) -> _Ratio:
    """Return the iterations of the shelf, while all jobs have so many left; then jobs end together."""

    def counts(remaining: Mapping[str, int]) -> dict[str, int]:
        # The shelf's own counts make its cyclic plan usable as it is.
        whole = all(placed[name] <= left for name, left in remaining.items())
        return {name: placed[name] for name in remaining} if whole else _ending_together(remaining)

    return counts


def _own_ratio(alone_us: Mapping[str, int]) -> _Ratio:
    """Return iterations in the ratio of the speeds of the jobs alone, as far as they have so many left."""

    def counts(remaining: Mapping[str, int]) -> dict[str, int]:
        found = iteration_counts({name: 1 / alone_us[name] for name in remaining}, _MOST_AT_OWN_SPEED)
        return {name: min(count, remaining[name]) for name, count in found.items()}

    return counts

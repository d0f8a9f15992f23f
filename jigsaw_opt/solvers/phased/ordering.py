"""Phases of jobs that begin in a given order: a job waits for those before it, and for memory where it needs that.

A policy that lets no GPU idle while a job could run misses plans: where two jobs do not fit into memory together, the
urgent one may have to go first although it is released later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeAlias

from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.phased.phases import Gpus, PhasePolicy, Timing, phases_of
from jigsaw_opt.solvers.phased.timer import UntimedError

__all__ = ["ordered_policies"]

_Value: TypeAlias = tuple[int, int]
_Jobs: TypeAlias = Mapping[str, Job | TaskGraphJob]

_TRIED = 20
"""Orders that are tried, for each job of a group."""
_SHARE = 0.2
"""Share of the time that is left for them."""
_MOST_BESIDE = 8
"""Jobs of a group up to which it is found out who fits into memory beside whom: each set takes a cyclic plan."""


def ordered_policies(
    jobs: _Jobs,
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


def _never(name: str, running: Sequence[str]) -> bool:
    return False

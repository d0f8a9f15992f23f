"""A search over placements whose jobs follow one another for memory: list schedules of each, their orders annealed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import NamedTuple

from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.activities.contraction import in_order
from jigsaw_opt.solvers.activities.current import Offer
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.improving import SECONDS_OF_LISTING, SECONDS_OF_VISIT
from jigsaw_opt.solvers.activities.moving import WorkerMoves
from jigsaw_opt.solvers.activities.order_search import OrderSearch
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.presence import flattened
from jigsaw_opt.solvers.solve_state import SolveState

__all__ = ["SearchInTime"]

_POOL = 8
"""Number of placements that are kept, and that it begins with."""
_DRAWS = 4
"""List schedules by drawn rules of each placement, the best of which is annealed."""
_ANNEALING = 0.05
"""Deterministic seconds of annealing of an order."""
_LEAST_WORK = 0.002
"""Deterministic seconds that a step counts as at least, however small the instance."""
_HOT = (0.05, 0.15, 0.5)
"""Initial temperatures, in mean durations of activities; one of them is drawn at random."""
_MOVED = 0.7
"""Share of the steps that move a data-parallel job, where there is one; the others draw other schedules."""
_PATIENCE = 400
"""Steps in a row without a better plan after which it ends."""


class _Found(NamedTuple):
    """Objective of the best schedule of a placement, its number among all, and the placement."""

    value: float
    number: int
    jobs: PlacedJobs


class SearchInTime:
    """Changes one placement after the other and schedules it.

    Parameters
    ----------
    solve_state
        The solve under way; it may receive other plans from elsewhere at the same time.
    operations
        The compiled instance.
    offer
        Takes better plans; `SolveState.offer` where None.
    stream
        Number of this search among several on one incumbent; each has chance of its own.

    Attributes
    ----------
    spent
        Deterministic seconds so far.
    exhausted
        Whether there is no point in going on.
    """

    def __init__(
        self, solve_state: SolveState, operations: Operations, offer: Offer | None = None, stream: int = 0
    ) -> None:
        self.solve_state, self.operations, self.offer = solve_state, operations, offer or solve_state.offer
        self._seed = solve_state.options.seed + (stream << 64)
        self.random, self.moves = Random(f"placements/{self._seed}"), WorkerMoves(operations)
        self.spent, self.exhausted = 0.0, False
        self._pool: list[_Found] = []
        self._waiting = islice(placements(operations, self._seed, in_time=True), _POOL)
        self._number, self._idle = 0, 0

    def step(self, work: float, seconds: float) -> None:
        """Schedule one placement.

        Parameters
        ----------
        work
            Limit in deterministic seconds.
        seconds
            Limit in seconds of the clock.
        """
        limit, end = self.spent + min(work, _ANNEALING), self.solve_state.seconds + seconds
        self.spent += _LEAST_WORK
        jobs = self._next()
        if jobs is None:
            self.exhausted = True
            return

        def stop(visits: int) -> bool:
            self.spent += visits * SECONDS_OF_VISIT
            return self.solve_state.reason() is not None or self.spent >= limit or self.solve_state.seconds >= end

        value, starts = self._scheduled(jobs)
        value, starts = min((value, starts), self._annealed(jobs, starts, stop))
        best = self.solve_state.objective
        self._idle = 0 if best is None or value < best else self._idle + 1
        self.exhausted = self._idle > _PATIENCE
        if best is None or value < best:
            self.offer(jobs.timetable(starts))
        self._pool = sorted([*self._pool, _Found(value, self._number, jobs)], key=lambda found: found[:2])[:_POOL]
        self._number += 1

    def _next(self) -> PlacedJobs | None:
        """Return the first placements, then a good one or what a move makes of it; None where there is none."""
        first = next(self._waiting, None)
        if first is not None:
            return self._keeping_caps(PlacedJobs(self.operations, first)) or self._next()
        if not self._pool:
            return None
        jobs = self._pool[min(len(self._pool) - 1, int(self.random.expovariate(0.5)))].jobs
        if self.random.random() < _MOVED:
            moved = self.moves.moved(jobs.placement, self.random)
            self.spent += len(jobs.flat.job) * SECONDS_OF_LISTING
            return jobs if moved is None else self._keeping_caps(PlacedJobs(self.operations, moved)) or jobs
        return jobs

    def _keeping_caps(self, jobs: PlacedJobs) -> PlacedJobs | None:
        return jobs if jobs.flat.keeps_caps_alone else None

    def _scheduled(self, jobs: PlacedJobs) -> tuple[float, list[int]]:
        """Return objective and starts of the best of some list schedules."""
        found: list[tuple[float, list[int]]] = []
        for draw in range(_DRAWS):
            rule = jobs.ranks.draw(self.random)
            rank = jobs.ranks.rank(rule.order, self.random if draw else None)
            starts, _ = jobs.scheduler.run(rank, rule.patience, rule.ahead)
            self.spent += len(starts) * SECONDS_OF_LISTING
            found.append((jobs.value(starts), starts))
            if self.solve_state.reason() is not None:
                break
        return min(found)

    def _annealed(self, jobs: PlacedJobs, starts: list[int], stop: Callable[[int], bool]) -> tuple[float, list[int]]:
        """Return objective and starts of the best order that annealing finds, with jobs waiting for one another."""
        flat = None if jobs.flat.caps else flattened(jobs.network, starts, self.operations.has_scarce_memory)
        if flat is None or self.solve_state.reason() is not None:
            return math.inf, starts
        weighted = self.operations.objective == "weighted_completion"
        search = OrderSearch(flat, self.operations.weights if weighted else (), cyclic=False)
        lengths = [length for length in flat.duration_us if length]
        value = jobs.value(starts)
        unit = sum(lengths) / len(lengths) * (max(self.operations.weights) if weighted else 1)
        steps = max(1, int(_ANNEALING / SECONDS_OF_VISIT / max(1, search.size)))
        hot, seed = self.random.choice(_HOT) * unit / max(1, value), self.random.randrange(2**31)
        found = search.anneal(in_order(flat, starts), starts, steps, hot, seed, stop)
        return jobs.value(found.starts), found.starts

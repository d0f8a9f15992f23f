"""A search over placements whose jobs follow one another for memory: list schedules of each, their orders annealed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.activities.capacities import keeping_capacities
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs, WorkerMoves
from jigsaw_opt.solvers.activities.orders.annealing import OrderSearch
from jigsaw_opt.solvers.activities.orders.current import Offer
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.presence import flattened
from jigsaw_opt.solvers.activities.ranks import in_order
from jigsaw_opt.solvers.activities.serial_placing import SerialPlacing, SerialSchedule
from jigsaw_opt.solvers.activities.stepwise import SECONDS_OF_LISTING, SECONDS_OF_VISIT, StepwiseSearch
from jigsaw_opt.solvers.solve_state import SolveState

_POOL = 8
"""Number of placements that are kept, and that it begins with."""
_DRAWS = 4
"""List schedules by drawn rules of each placement, the best of which is annealed."""
_ANNEALING = 0.05
"""Deterministic seconds of annealing of an order."""
_HOT = (0.05, 0.15, 0.5)
"""Initial temperatures, in mean durations of activities; one of them is drawn at random."""
_MOVED = 0.7
"""Share of the steps that move a data-parallel job, where there is one; the others draw other schedules."""
_SERIAL, _WALK, _LOSS = 0.7, 0.02, 0.01
"""Share of the steps that vary a serial schedule, deterministic seconds of a walk from one of them to another, and mean
share of the objective that a step of it may lose."""
_PATIENCE = 400
"""Steps in a row without a better plan after which it ends."""


class _Found(NamedTuple):
    """Objective of the best schedule of a placement, its number among all, and the placement.

    With it is the serial schedule that it was made of, if it was.
    """

    value: float
    number: int
    jobs: PlacedJobs
    serial: SerialSchedule | None


class SearchInTime(StepwiseSearch):
    """Changes one placement after the other and schedules it."""

    chance = "placements"

    def __init__(
        self, solve_state: SolveState, operations: Operations, offer: Offer | None = None, stream: int = 0
    ) -> None:
        super().__init__(solve_state, operations, offer, stream)
        self.moves, self.serial = WorkerMoves(operations), SerialPlacing(operations)
        self._pool: list[_Found] = []
        self._first = self.serial.first_schedules()
        self._waiting = islice(placements(operations, self.seed, in_time=True), _POOL)
        self._number, self._idle = 0, 0

    def step(self, work: float, seconds: float) -> None:
        """Schedule one placement."""
        stop, before = self._stop_after(work, seconds), self.serial.spent
        found = self._next(stop)
        self.spent += self.serial.spent - before
        if found is None:
            self.exhausted = not self._pool
            return
        jobs, serial = found
        # Annealing has a limit of its own.
        stop = self._stop_after(min(work, _ANNEALING), seconds)
        if serial is None:
            value, starts = self._scheduled(jobs)
        else:
            starts = jobs.starts_in_order(serial.starts, serial.order)
            value = jobs.value(starts)
        # To make all that annealing needs takes about as long as two list schedules.
        self.spent += 2 * len(starts) * SECONDS_OF_LISTING
        value, starts = min((value, starts), self._annealed(jobs, starts, stop))
        best = self.solve_state.objective
        self._idle = 0 if best is None or value < best else self._idle + 1
        self.exhausted = self._idle > _PATIENCE
        if best is None or value < best:
            self.offer(jobs.timetable(starts))
        self._pool = sorted([*self._pool, _Found(value, self._number, jobs, serial)], key=lambda own: own[:2])[:_POOL]
        self._number += 1

    def _next(self, stop: Callable[[int], bool]) -> tuple[PlacedJobs, SerialSchedule | None] | None:
        """Return the first placements, then what is made of a good one; None where that is none."""
        first = next(self._first, None)
        if first is not None:
            return self._of_serial(first)
        waiting = next(self._waiting, None)
        if waiting is not None:
            return self._keeping_caps(PlacedJobs(self.operations, waiting)) or self._next(stop)
        if not self._pool:
            return None
        drawn = self._pool[min(len(self._pool) - 1, int(self.random.expovariate(0.5)))]
        serials = [found.serial for found in self._pool if found.serial is not None]
        if serials and self.random.random() < _SERIAL:
            return self._of_serial(self._varied(drawn.serial or self.random.choice(serials), stop))
        if self.random.random() < _MOVED:
            moved = self.moves.moved(drawn.jobs.placement, self.random)
            self.spent += len(drawn.jobs.flat.job) * SECONDS_OF_LISTING
            changed = None if moved is None else self._keeping_caps(PlacedJobs(self.operations, moved))
            return changed or (drawn.jobs, None)
        return drawn.jobs, None

    def _varied(self, serial: SerialSchedule, stop: Callable[[int], bool]) -> SerialSchedule:
        """Return the best of the serial schedules that a walk from one of them comes by."""
        current, best, limit = serial, serial, self.serial.spent + _WALK
        while self.serial.spent < limit and not stop(0):
            found = self.serial.neighbour(current, self.random)
            if found is None:
                continue
            if found.value[0] <= current.value[0] * (1 + _LOSS * self.random.expovariate(1)):
                current = found
            if best is serial or found.value < best.value:
                best = found
        return best

    def _of_serial(self, serial: SerialSchedule) -> tuple[PlacedJobs, SerialSchedule] | None:
        placement = serial.placement(self.operations)
        return None if placement is None else (PlacedJobs(self.operations, placement), serial)

    def _keeping_caps(self, jobs: PlacedJobs) -> tuple[PlacedJobs, None] | None:
        return (jobs, None) if jobs.flat.fits_alone else None

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
        flat = flattened(jobs.network, starts, self.operations.has_scarce_holdings)
        if flat is None or self.solve_state.reason() is not None:
            return math.inf, starts
        weighted = self.operations.objective == "weighted_completion"
        flat = keeping_capacities(flat, starts)
        search = OrderSearch(flat, self.operations.weights if weighted else (), cyclic=False)
        lengths = [length for length in flat.duration_us if length]
        value = jobs.value(starts)
        unit = sum(lengths) / len(lengths) * (max(self.operations.weights) if weighted else 1)
        steps = max(1, int(_ANNEALING / SECONDS_OF_VISIT / max(1, search.size)))
        hot, seed = self.random.choice(_HOT) * unit / max(1, value), self.random.randrange(2**31)
        found = search.anneal(in_order(flat, starts), starts, steps, hot, seed, stop)
        return jobs.value(found.starts), found.starts

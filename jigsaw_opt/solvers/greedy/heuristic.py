"""From operations to a timetable: some placements, some priority rules, and the best of what comes out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from math import inf

from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem.compiled.operations import MOST_OPERATIONS, Operations
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.activities.heuristic import task_graph_timetables, timetables_in_time
from jigsaw_opt.solvers.greedy.evaluation import Evaluator, Outcome
from jigsaw_opt.solvers.greedy.order_insertion import inserted_by_ratio
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.construction import balanced, exact, packed
from jigsaw_opt.solvers.placement.layout import Demand, demands

_STEP_OPERATIONS, _MAX_STEPS = 150_000, 200
"""Blocks and transfers of all trials of the local search, and trials, at most: about a second even uncompiled."""
_EXACT_JOBS = 12
"""Jobs up to which placements are found by backtracking: with more, its limit of steps decides next to nothing."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """The keys that were tried, and what came out."""

    keys: _Keys
    outcome: Outcome


def greedy_timetable(operations: Operations, seed: int = 0) -> Timetable | None:
    """Return a timetable by list scheduling.

    Parameters
    ----------
    operations
        The compiled instance; either horizon, any objective.
    seed
        Seeds the local search on small instances; the same seed gives the same timetable.

    Returns
    -------
    Timetable or None
        None if no placement was found. That proves nothing.

    Raises
    ------
    TooLargeError
        For more than `MOST_OPERATIONS` blocks and transfers.
    """
    best = None
    for timetable in timetables(operations, seed):
        best = timetable or best
    return best


def timetables(operations: Operations, seed: int = 0) -> Iterator[Timetable | None]:
    """Yield the trials of `greedy_timetable` one by one: a timetable where one is the best so far, else None.

    For weighted completions, jobs inserted by their ratios follow the plain trials.
    """
    require_size(operations)
    if operations.needs_network:
        yield from task_graph_timetables(operations, seed)
        return
    asked = demands(operations)
    if asked is None:
        return
    table = ProblemData(operations, asked)
    evaluator = Evaluator(operations, table.layout)
    least = inf
    for step, outcome in enumerate(trials(evaluator, table, seed), 1):
        if outcome is not None and outcome.value < least:
            least = outcome.value
            yield evaluator.timetable(outcome)
        else:
            yield None
        inserted = inserted_by_ratio(table) if step == PLAIN_TRIALS and evaluator.weighted else None
        value = inf if inserted is None else inserted[0] + evaluator.penalty(inserted[1].ends)
        if inserted is not None and value < least:
            least = value
            yield inserted[1]
    yield from timetables_in_time(operations, seed, least)


def trials(evaluator: Evaluator, table: ProblemData, seed: int = 0) -> Iterator[Outcome | None]:
    """Yield the schedules of `timetables` one by one: the outcome where one is the best so far, else None."""
    operations = evaluator.operations
    search = _LocalSearch(evaluator, table, random.Random(seed))
    best: _Trial | None = None
    for step in range(len(_Order) + min(_MAX_STEPS, _STEP_OPERATIONS // (operations.blocks + operations.transfers))):
        if step < len(_Order):
            keys = search.plain(list(_Order)[step])
        elif best is None:
            return
        else:
            urgent = search.urgent(best) if step == len(_Order) else None
            keys = urgent or search.mutated(best)
        trial = search.trial(keys)
        if trial is None or (best is not None and trial.outcome.value > best.outcome.value):
            yield None
            continue
        better = best is None or trial.outcome.value < best.outcome.value
        best = trial
        yield trial.outcome if better else None


def placements(operations: Operations, asked: Sequence[Demand]) -> Iterator[list[Assignment]]:
    """Yield the placements that the heuristic begins with, as far as it finds any."""
    table = ProblemData(operations, asked)
    search = _LocalSearch(Evaluator(operations, table.layout), table, random.Random(0))
    for order in _Order:
        jobs = search.place(search.plain(order))
        if jobs is not None:
            yield jobs


def require_size(operations: Operations) -> None:
    """Refuse an instance whose plan would not fit into memory."""
    size = operations.blocks + operations.transfers
    if size > MOST_OPERATIONS:
        raise TooLargeError(
            f"the plan would have {size:,} blocks and transfers; a plan is written for {MOST_OPERATIONS:,} at most; "
            "a phased plan lists no iterations (the method `phased`, `jigsaw solve --solver phased`)"
        )


class _Order(Enum):
    """How far wide jobs are placed ahead of narrow ones."""

    PLAIN = auto()
    WIDE_FIRST = auto()
    ROOT_OF_WIDTH = auto()


PLAIN_TRIALS = len(_Order)
"""Number of the `trials` that come before the local search."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys that the local search changes, by job.

    `order`: the rule of the order of placement. `place, priority`: factors on that order and on the priority; 1 is the
    plain rule. `offset_us`: earliest start; list scheduling alone never waits for a better job to come.
    """

    order: _Order
    place: list[float]
    priority: list[float]
    offset_us: list[int]


class _LocalSearch:
    """Runs the heuristic for given keys."""

    def __init__(self, evaluator: Evaluator, table: ProblemData, draw: random.Random) -> None:
        self.evaluator, self.table, self.asked, self.draw = evaluator, table, table.demands, draw
        self._placed: dict[tuple[int, ...], list[Assignment] | None] = {}
        self.operations, self.layout = evaluator.operations, evaluator.layout

    def trial(self, keys: _Keys) -> _Trial | None:
        """Return the schedule under `keys`; None where no placement is found."""
        jobs = self.place(keys)
        return None if jobs is None else _Trial(keys, self.evaluator.evaluate(jobs, keys.priority, keys.offset_us))

    def plain(self, order: _Order) -> _Keys:
        """Return the keys of the rules as they are."""
        count = len(self.asked)
        return _Keys(order, [1.0] * count, [1.0] * count, [0] * count)

    def urgent(self, best: _Trial) -> _Keys | None:
        """Return the best keys with the job of the earliest deadline first (Jackson's rule); None without deadlines."""
        deadlines = self.operations.deadlines
        latest = max((deadline for deadline in deadlines if deadline is not None), default=0)
        priority = []
        for job, deadline in zip(best.outcome.jobs, deadlines if latest else (), strict=False):
            # As a whole, the job counts as its deadline; without one it comes behind the others.
            length, moment = job.iteration_us * job.job.iterations, deadline or 2 * latest
            priority.append(moment * job.job.weight / length if self.evaluator.weighted else 1 / (moment * length))
        return replace(best.keys, priority=priority) if priority else None

    def mutated(self, best: _Trial) -> _Keys:
        """Return the best keys with one to three of them drawn again.

        A job may be held until another begins or ends.
        """
        draw, count, old = self.draw, len(self.asked), best.keys
        keys = _Keys(old.order, list(old.place), list(old.priority), list(old.offset_us))
        for _ in range(draw.randint(1, 3)):
            index, kind = draw.randrange(count), draw.randrange(5)
            if kind == 0:
                other, outcome = draw.randrange(count), best.outcome
                release = self.operations.jobs[other].release_us
                keys.offset_us[index] = draw.choice((0, 0, release, outcome.begins[other], outcome.ends[other]))
            else:
                (keys.place if kind % 2 else keys.priority)[index] = draw.uniform(0.3, 1.7)
        return keys

    def place(self, keys: _Keys) -> list[Assignment] | None:
        """Return the first placement under which every job finds levels: by load, by memory, or by backtracking."""
        order = tuple(self._by_load(keys))
        if order not in self._placed:
            # Most trials change priorities only, or no place in the order.
            self._placed[order] = self._found(order)
        return self._placed[order]

    def _found(self, by_load: Sequence[int]) -> list[Assignment] | None:
        asked = self.asked
        by_size = sorted(by_load, key=lambda i: -asked[i].job.state_bytes - asked[i].job.activation_bytes[-1])
        by_width = sorted(by_size, key=lambda i: -asked[i].job.slots)
        strategies = [(balanced, by_load), (balanced, by_size), (packed, by_size), (packed, by_width)]
        if len(asked) <= _EXACT_JOBS and not self.layout.held:
            strategies.append((partial(exact, is_needed=not self.operations.has_scarce_holdings), by_width))
        for strategy, order in strategies:
            placement = strategy(self.layout, asked, order)
            jobs = self.table.all_placed(placement) if placement is not None else None
            if jobs is not None:
                return jobs
        return None

    def _by_load(self, keys: _Keys) -> list[int]:
        """Return jobs, longest first, or for completions by the ratio of work to weight; wide jobs are moved ahead.

        Wide jobs load links and have fewer choices, so `_Order` says how far they go ahead.
        """
        widest = max(server.gpus for server in self.layout.servers)

        def key(index: int) -> tuple[bool, float]:
            demand, job = self.asked[index], self.operations.jobs[index]
            ahead = job.slots**0.5 if keys.order is _Order.ROOT_OF_WIDTH else 1.0
            work = max(demand.slot_us.values()) * keys.place[index]
            rank = work / (job.weight * ahead) if self.evaluator.weighted else -work * ahead
            return keys.order is _Order.WIDE_FIRST and job.slots <= widest, rank

        return sorted(range(len(self.asked)), key=key)

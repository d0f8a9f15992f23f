"""Laying one job into the free times that the others leave, each operation as early as it fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter

from jigsaw_opt.problem.calendar import Calendar
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.solvers.placement.assignment import Assignment


@dataclass(slots=True, eq=False)
class ScheduledJob:
    """A job with all its operations scheduled.

    `levels, blocks, transfers`: levels of the slots, starts of the blocks and of the transfers, by iteration. `start,
    end`: earliest block of the first iteration, latest end of the last one, in microseconds.
    """

    job: OperationGraph
    assignment: Assignment
    levels: list[Sequence[int]]
    blocks: list[list[int]]
    transfers: list[list[int]]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FrozenPrefix:
    """A job some of whose operations are history: what started before a moment stays, the rest comes later.

    `scheduled`: the job as it was scheduled. The levels of an iteration of which any operation has started stay as
    well.
    """

    moment: int
    scheduled: ScheduledJob

    def reaches(self, iteration: int) -> bool:
        """Return whether any operation of an iteration has started."""
        return min(self.scheduled.blocks[iteration]) < self.moment

    def kept(self, iteration: int) -> tuple[Iterable[int | None], Iterable[int | None]]:
        """Return the starts of blocks and of transfers of an iteration that stay; None for the others."""
        blocks, transfers = self.scheduled.blocks[iteration], self.scheduled.transfers[iteration]
        return self._before(blocks), self._before(transfers)

    def _before(self, starts: Iterable[int]) -> list[int | None]:
        return [start if start < self.moment else None for start in starts]


def insert_job(
    job: OperationGraph,
    assignment: Assignment,
    gpus: Sequence[Calendar],
    channel: Calendar,
    begin: int,
    latest: int | None,
    frozen: FrozenPrefix | None = None,
) -> ScheduledJob | None:
    """Return the job inserted at an assignment, each operation as early as the free times permit.

    None where it was given up, or where what stays breaks an order.

    `latest`: give up where the job ends later; None for no such limit. On the cyclic horizon also where it takes more
    than the period. `frozen`: what stays of it; those operations are on the timelines already. `assignment` has their
    levels.
    """
    scheduled = ScheduledJob(job, assignment, [], [], [], begin, begin)
    barrier = begin
    for iteration in range(job.iterations):
        rest = (job.iterations - iteration) * assignment.iteration_us
        if latest is not None and barrier + rest > latest:
            return None
        end = _insert_iteration(scheduled, iteration, gpus, channel, barrier, frozen)
        if end is None:
            return None
        barrier = end
        if iteration == 0:
            scheduled.start = min(scheduled.blocks[0])
            period = gpus[0].period
            if period is not None:
                latest = scheduled.start + period if latest is None else min(latest, scheduled.start + period)
    scheduled.end = barrier
    return scheduled if latest is None or barrier <= latest else None


def uncontended_profile(assignment: Assignment) -> list[tuple[list[int], int]]:
    """Return, by iteration, when its buckets are ready and its blocks end after it begins, if all GPUs are free."""
    fastest_first = sorted(assignment.tables, key=itemgetter(-1))
    found: dict[tuple[int, ...], tuple[list[int], int]] = {}
    for row in assignment.plan.rows:
        if row not in found:
            done = list(zip(fastest_first, sorted(row, reverse=True), strict=True))
            buckets = range(len(assignment.exchange[0]))
            ready = [max(table[bucket] for table, level in done if level > bucket) for bucket in buckets]
            found[row] = ready, max(table[level - 1] for table, level in done)
    return [found[row] for row in assignment.plan.rows]


def least_length(
    assignment: Assignment, profile: Sequence[tuple[list[int], int]], channel: Calendar, begin: int
) -> int | None:
    """Return the least time that a job takes from a moment on, as far as its links are free; None without room."""
    barrier = begin
    for (ready, end), exchange in zip(profile, assignment.exchange, strict=True):
        moment = barrier
        for offset, duration in zip(ready, exchange, strict=True):
            start = channel.earliest(max(moment, barrier + offset), duration)
            if start is None:
                return None
            moment = start + duration
        barrier = max(moment, barrier + end)
    return barrier - begin


def _insert_iteration(
    scheduled: ScheduledJob,
    iteration: int,
    gpus: Sequence[Calendar],
    channel: Calendar,
    barrier: int,
    frozen: FrozenPrefix | None,
) -> int | None:
    """Insert the blocks and transfers of one iteration; return its end, None without room or where an order breaks."""
    assignment, moment = scheduled.assignment, 0 if frozen is None else frozen.moment
    blocks, transfers = (repeat(None), repeat(None)) if frozen is None else frozen.kept(iteration)
    levels: Sequence[int] | None
    if frozen is not None and frozen.reaches(iteration):
        levels = frozen.scheduled.levels[iteration]
    else:
        levels = _levels(assignment, iteration, gpus, max(barrier, moment))
    if levels is None:
        return None
    exchange = assignment.exchange[iteration]
    ready = [0] * len(exchange)
    starts: list[int] = []
    end = barrier
    for calendar, table, level, kept in zip(gpus, assignment.tables, levels, blocks, strict=False):
        start = _start(calendar, barrier, moment, table[level - 1], kept)
        if start is None:
            return None
        starts.append(start)
        end = max(end, start + table[level - 1])
        for bucket in range(min(level, len(ready))):
            if start + table[bucket] > ready[bucket]:
                ready[bucket] = start + table[bucket]
    moves, before = [], 0
    for bucket_ready, duration, kept in zip(ready, exchange, transfers, strict=False):
        start = _start(channel, max(before, bucket_ready), moment, duration, kept)
        if start is None:
            return None
        moves.append(start)
        before = start + duration
    scheduled.levels.append(levels)
    scheduled.blocks.append(starts)
    scheduled.transfers.append(moves)
    return max(end, before)


def _start(calendar: Calendar, least: int, moment: int, duration: int, kept: int | None) -> int | None:
    """Return the start that stays if it is late enough, else the earliest one from a moment on."""
    if kept is None:
        return calendar.earliest(max(least, moment), duration)
    return kept if kept >= least else None


def _levels(assignment: Assignment, iteration: int, gpus: Sequence[Calendar], barrier: int) -> Sequence[int] | None:
    """Return the levels of the slots: the deepest for the slot that would end it first, within what memory admits."""
    row = assignment.plan.rows[iteration]
    if assignment.plan.fixed or row[0] == row[-1]:
        return row
    finish = []
    for slot, (calendar, table) in enumerate(zip(gpus, assignment.tables, strict=True)):
        start = calendar.earliest(barrier, table[row[0] - 1])
        if start is None:
            # A GPU without room for the deepest block may have it for a shallower one.
            start = barrier + (calendar.period or 0)
        finish.append((start + table[row[0] - 1], slot))
    finish.sort(key=itemgetter(0))
    left = [slot for _, slot in finish]
    levels = [0] * len(left)
    for level in row:
        at = 0
        if assignment.caps is not None:
            while assignment.caps[left[at]] < level:
                at += 1
        levels[left.pop(at)] = level
    return levels

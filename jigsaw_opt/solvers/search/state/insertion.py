"""Laying one job into the free times that the others leave, each piece as early as it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from jigsaw_opt.problem.pieces import PieceGraph
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.state.calendar import ResourceCalendar

__all__ = ["FrozenPrefix", "ScheduledJob", "insert_job", "least_length", "uncontended_profile"]


@dataclass(slots=True, eq=False)
class ScheduledJob:
    """A job with all its pieces scheduled.

    Parameters
    ----------
    job
        Its pieces.
    spot
        Where it is.
    levels, blocks, transfers
        Levels of the slots, starts of the blocks and of the transfers, by iteration.
    start, end
        Earliest block of the first iteration, latest end of the last one, in microseconds.
    """

    job: PieceGraph
    spot: PlacedJob
    levels: list[Sequence[int]]
    blocks: list[list[int]]
    transfers: list[list[int]]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FrozenPrefix:
    """A job some of whose pieces are history: what started before a moment stays, the rest comes no earlier than it.

    Parameters
    ----------
    moment
        In microseconds.
    scheduled
        The job as it was scheduled. The levels of an iteration of which any piece has started stay as well.
    """

    moment: int
    scheduled: ScheduledJob

    def reaches(self, iteration: int) -> bool:
        """Whether any piece of an iteration has started."""
        return min(self.scheduled.blocks[iteration]) < self.moment

    def kept(self, start: int) -> int | None:
        """A start that stays, or None."""
        return start if start < self.moment else None


def insert_job(
    job: PieceGraph,
    spot: PlacedJob,
    gpus: Sequence[ResourceCalendar],
    channel: ResourceCalendar,
    begin: int,
    latest: int | None,
    frozen: FrozenPrefix | None = None,
) -> ScheduledJob | None:
    """The job inserted at a spot, each piece as early as the free times permit.

    Parameters
    ----------
    job, spot
        What is inserted where.
    gpus, channel
        Timelines of the spot's GPUs, by slot, and of its links together.
    begin
        No block starts earlier.
    latest
        Give up where the job ends later; None for no such limit. On the cyclic horizon also where it takes more than
        the period.
    frozen
        What stays of it; those pieces are on the timelines already. `spot` has their levels.

    Returns
    -------
    Laid or None
        None where it was given up, or where what stays breaks an order.
    """
    scheduled = ScheduledJob(job, spot, [], [], [], begin, begin)
    barrier = begin
    for iteration in range(job.iterations):
        rest = (job.iterations - iteration) * spot.iteration_us
        if latest is not None and barrier + rest > latest:
            return None
        if frozen is not None and frozen.reaches(iteration):
            end = _continue_iteration(scheduled, iteration, gpus, channel, barrier, frozen)
        else:
            end = _insert_iteration(
                scheduled, iteration, gpus, channel, barrier if frozen is None else max(barrier, frozen.moment)
            )
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


def uncontended_profile(spot: PlacedJob) -> list[tuple[list[int], int]]:
    """For each iteration, when its buckets are ready and when its blocks end after it begins, if all GPUs are free."""
    fastest_first = sorted(spot.tables, key=itemgetter(-1))
    found: dict[tuple[int, ...], tuple[list[int], int]] = {}
    for row in spot.plan.rows:
        if row not in found:
            done = list(zip(fastest_first, sorted(row, reverse=True), strict=True))
            buckets = range(len(spot.exchange[0]))
            ready = [max(table[bucket] for table, level in done if level > bucket) for bucket in buckets]
            found[row] = ready, max(table[level - 1] for table, level in done)
    return [found[row] for row in spot.plan.rows]


def least_length(
    spot: PlacedJob, profile: Sequence[tuple[list[int], int]], channel: ResourceCalendar, begin: int
) -> int | None:
    """Time that a job takes at least from a moment on, as far as its links are free; None without room there.

    Parameters
    ----------
    spot, profile
        Where it is, and its `uncontended_profile` there.
    channel
        Timeline of the spot's links together.
    begin
        The moment.
    """
    barrier = begin
    for (ready, end), exchange in zip(profile, spot.exchange, strict=True):
        moment = barrier
        for offset, duration in zip(ready, exchange, strict=True):
            start = channel.earliest(max(moment, barrier + offset), duration)
            if start is None:
                return None
            moment = start + duration
        barrier = max(moment, barrier + end)
    return barrier - begin


def _insert_iteration(
    scheduled: ScheduledJob, iteration: int, gpus: Sequence[ResourceCalendar], channel: ResourceCalendar, barrier: int
) -> int | None:
    """Insert the blocks and transfers of one iteration; returns its end."""
    spot = scheduled.spot
    levels = _levels(spot, iteration, gpus, barrier)
    if levels is None:
        return None
    exchange = spot.exchange[iteration]
    ready = [0] * len(exchange)
    starts: list[int] = []
    end = barrier
    for calendar, table, level in zip(gpus, spot.tables, levels, strict=True):
        start = calendar.earliest(barrier, table[level - 1])
        if start is None:
            return None
        starts.append(start)
        end = max(end, start + table[level - 1])
        for bucket in range(min(level, len(ready))):
            if start + table[bucket] > ready[bucket]:
                ready[bucket] = start + table[bucket]
    moves, moment = [], 0
    for moment_ready, duration in zip(ready, exchange, strict=True):
        found = channel.earliest(max(moment, moment_ready), duration)
        if found is None:
            return None
        moves.append(found)
        moment = found + duration
    scheduled.levels.append(levels)
    scheduled.blocks.append(starts)
    scheduled.transfers.append(moves)
    return max(end, moment)


def _continue_iteration(
    scheduled: ScheduledJob,
    iteration: int,
    gpus: Sequence[ResourceCalendar],
    channel: ResourceCalendar,
    barrier: int,
    frozen: FrozenPrefix,
) -> int | None:
    """As `_insert_iteration`, for an iteration of which some pieces stay; None where these break an order."""
    spot, old = scheduled.spot, frozen.scheduled
    levels, exchange = old.levels[iteration], spot.exchange[iteration]
    ready = [0] * len(exchange)
    starts: list[int] = []
    end = barrier
    for calendar, table, level, before in zip(gpus, spot.tables, levels, old.blocks[iteration], strict=True):
        start = _start(frozen, before, barrier, calendar, table[level - 1])
        if start is None:
            return None
        starts.append(start)
        end = max(end, start + table[level - 1])
        ready = [max(moment, start + table[b]) if b < level else moment for b, moment in enumerate(ready)]
    moves, moment = [], 0
    for moment_ready, duration, before in zip(ready, exchange, old.transfers[iteration], strict=True):
        found = _start(frozen, before, max(moment, moment_ready), channel, duration)
        if found is None:
            return None
        moves.append(found)
        moment = found + duration
    scheduled.levels.append(levels)
    scheduled.blocks.append(starts)
    scheduled.transfers.append(moves)
    return max(end, moment)


def _start(frozen: FrozenPrefix, before: int, least: int, calendar: ResourceCalendar, duration: int) -> int | None:
    """The old start where it stays and is late enough, else the earliest one."""
    kept = frozen.kept(before)
    if kept is None:
        return calendar.earliest(max(least, frozen.moment), duration)
    return kept if kept >= least else None


def _levels(spot: PlacedJob, iteration: int, gpus: Sequence[ResourceCalendar], barrier: int) -> Sequence[int] | None:
    """Levels of the slots: the deepest to the slot that would end it first, within what memory admits."""
    row = spot.plan.rows[iteration]
    if spot.plan.fixed or row[0] == row[-1]:
        return row
    finish = []
    for slot, (calendar, table) in enumerate(zip(gpus, spot.tables, strict=True)):
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
        if spot.caps is not None:
            while spot.caps[left[at]] < level:
                at += 1
        levels[left.pop(at)] = level
    return levels

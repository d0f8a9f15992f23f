"""The least period of a given order of pieces, by repeated sweeps over one period.

With the order on every GPU and link fixed, a cyclic timetable is a solution of difference constraints: one
period is an acyclic sweep in the order of the trace, and only the *wraps* reach into the next
period, one for each GPU, link and job: its last piece ends no later than the period after its first one
starts. A sweep from any earliest starts (the *heads*) gives a timetable, whose period is its longest
wrap. For a trial period the heads are raised until all wraps keep it (Bellman and Ford's
method on max-plus constraints); the trial period is bisected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.greedy.progress import Progress
from jigsaw_opt.solvers.greedy.timing import Schedule

__all__ = ["compress"]

_RAISES = 12
"""Sweeps after which a trial period is given up."""


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One period: first start and last end on every GPU, link and in every job (``wraps`` in this order)."""

    jobs: list[Progress]
    wraps: list[tuple[int, int]]

    @property
    def period(self) -> int:
        return max(1, *(end - start for start, end in self.wraps))

    def heads(self, period: int) -> list[int]:
        """Earliest starts that the wraps ask for at a trial period."""
        return [max(start, end - period) for start, end in self.wraps]


def compress(schedule: Schedule, gpus: int, links: int, sweeps: int) -> tuple[int, Schedule]:
    """Period and timetable with the order and the levels of `schedule`, within a limit of sweeps.

    Parameters
    ----------
    schedule
        A finite schedule from time 0 on.
    gpus, links
        How many there are.
    sweeps
        Most sweeps to spend; at least one.
    """
    order = _Order(schedule, gpus, links)
    best = order.sweep([0] * (gpus + links + len(schedule.jobs)))
    low, trial = order.work_us(), order.work_us()
    sweeps -= 1
    while low < best.period and sweeps > 0:
        current = best
        for _ in range(min(_RAISES, sweeps)):
            current = order.sweep(current.heads(trial))
            sweeps -= 1
            if current.period < best.period:
                best = current
            if best.period <= trial:
                break
        else:
            low = trial + 1
        trial = (low + best.period) // 2
    return best.period, Schedule(best.jobs, schedule.trace)


class _Order:
    """The order of all pieces, levels included, and the sweeps through it."""

    def __init__(self, schedule: Schedule, gpus: int, links: int) -> None:
        self.placed = [progress.job for progress in schedule.jobs]
        self.levels = [progress.levels for progress in schedule.jobs]
        self.trace = schedule.trace
        self.gpus, self.links = gpus, links

    def work_us(self) -> int:
        """Work on the busiest GPU or link, or the longest job without contention: no order does better."""
        load = [0] * (self.gpus + self.links)
        span = 0
        for job, rows in zip(self.placed, self.levels, strict=True):
            for levels in rows:
                for gpu, table, level in zip(job.gpus, job.tables, levels, strict=True):
                    load[gpu] += table[level - 1]
            exchange = sum(map(sum, job.exchange))
            for link in job.links:
                load[self.gpus + link] += exchange
            span = max(span, _alone_us(job, rows))
        return max(1, span, *load)

    def sweep(self, heads: Sequence[int]) -> _Sweep:
        """Start every piece as early as order, precedence and heads permit."""
        gpus, links = self.gpus, self.links
        free = list(heads[: gpus + links])
        first: list[int | None] = [None] * len(free)
        jobs = [Progress(job) for job in self.placed]
        opening = list(heads[gpus + links :])
        for index, piece in self.trace:
            progress = jobs[index]
            if piece < 0:
                start = max(progress.transfer_from(), *[free[gpus + link] for link in progress.job.links])
                end = progress.start_transfer(start)
                for link in progress.job.links:
                    free[gpus + link] = end
                    if first[gpus + link] is None:
                        first[gpus + link] = start
                continue
            if not progress.blocks_left:
                opening[index] = max(opening[index], progress.end)
                progress.open(self.levels[index][len(progress.levels)])
            gpu = progress.job.gpus[piece]
            start = max(free[gpu], opening[index])
            free[gpu] = progress.start_block(piece, start)
            if first[gpu] is None:
                first[gpu] = start
            if not progress.blocks_left and not progress.uses_links:
                progress.exchange_alone()
        wraps = [(start or 0, end if start is not None else 0) for start, end in zip(first, free, strict=True)]
        return _Sweep(jobs, wraps + [(min(progress.blocks[0]), progress.end) for progress in jobs])


def _alone_us(job: PlacedJob, rows: Sequence[Sequence[int]]) -> int:
    """Span of a job with these levels when no other job is in its way."""
    progress = Progress(job)
    for levels in rows:
        start = progress.end
        progress.open(levels)
        for slot in range(len(levels)):
            progress.start_block(slot, start)
        progress.exchange_alone()
    return progress.end - job.job.release_us

"""All schedules of a tiny batch, and the best of them by the integer program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from jigsaw_opt.formulations.sjf_bco import Batch, BatchProgress, BatchSchedule, Spread, build, completion
from jigsaw_opt.solvers.engines.highs import HighsSearch
from jigsaw_opt.solvers.engines.mip import Ending, MipTask


def all_schedules(batch: Batch, limit: int) -> Iterator[BatchSchedule]:
    """Yield every schedule whose makespan is at most `limit`, up to slots in which nothing runs.

    Idle slots help nobody, as all jobs are there from the beginning. A slot without a start may help, also
    when nothing ends in it: to wait may spare contention.
    """
    return _extend(BatchProgress(batch), {}, limit)


def best_schedule(batch: Batch, limit: int) -> BatchSchedule | None:
    """Return the schedule with the least makespan, proved by the program (10) to (13); None where there is none.

    Of schedules with the same ends one is listed.
    """
    listed = {completion(batch, schedule): schedule for schedule in all_schedules(batch, limit)}
    if not listed:
        return None
    return list(listed.values())[choose([ends for ends in listed if ends is not None])]


def choose(ends: Sequence[Sequence[int]]) -> int:
    """Return the number of the schedule with the least makespan, by the program.

    Parameters
    ----------
    ends
        End of every job in every schedule.
    """
    model = build(ends)
    found: list[Sequence[float]] = []
    task = MipTask(model.program, 1, found.append, lambda bound: None, seconds=None, nodes=None, seed=0, threads=1)
    ending = HighsSearch(task).run()
    assert ending is Ending.SOLVED
    return min(map(model.chosen, found), key=lambda k: max(ends[k]))


def _extend(progress: BatchProgress, starts: dict[int, tuple[int, Spread]], limit: int) -> Iterator[BatchSchedule]:
    """Yield schedules that go on from here: `starts` has first slot and spread of the jobs started before."""
    batch = progress.batch
    if len(starts) == len(batch.jobs) and not progress.running:
        yield BatchSchedule(*zip(*(starts[job] for job in range(len(starts))), strict=True))
        return
    waiting = [job for job in range(len(batch.jobs)) if job not in starts]
    for chosen in _starts(progress, waiting):
        now = progress.copy()
        for job, spread in chosen.items():
            now.start(job, spread)
        if not now.running or not _can_end(now, limit):
            continue
        now.to_next_end(now.clock + 1)
        yield from _extend(now, starts | {job: (progress.clock, spread) for job, spread in chosen.items()}, limit)


def _starts(progress: BatchProgress, waiting: Sequence[int]) -> Iterator[dict[int, Spread]]:
    """Yield every choice of waiting jobs to start now, with their spreads, that the free GPUs allow."""
    held = [sum(column) for column in zip(*progress.running.values())] or [0] * len(progress.batch.gpus)
    free = tuple(count - used for count, used in zip(progress.batch.gpus, held, strict=True))
    return _choices(progress.batch, tuple(waiting), free)


def _choices(batch: Batch, waiting: tuple[int, ...], free: Spread) -> Iterator[dict[int, Spread]]:
    if not waiting:
        yield {}
        return
    job, rest = waiting[0], waiting[1:]
    yield from _choices(batch, rest, free)
    for spread in _spreads(batch.jobs[job].workers, free):
        left = tuple(have - used for have, used in zip(free, spread, strict=True))
        for others in _choices(batch, rest, left):
            yield {job: spread} | others


@cache
def _spreads(workers: int, free: Spread) -> tuple[Spread, ...]:
    """Return every way to place that many workers on that many free GPUs a server."""
    if not free:
        return ((),) if workers == 0 else ()
    first, rest = free[0], free[1:]
    return tuple((k, *others) for k in range(min(workers, first) + 1) for others in _spreads(workers - k, rest))


def _can_end(progress: BatchProgress, limit: int) -> bool:
    """Return whether the jobs that run may all end within the limit."""
    ends = [progress.least_end(job) for job in progress.running]
    return all(end is not None and end <= limit for end in ends)

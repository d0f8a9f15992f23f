"""From pieces to a timetable: some placements, some priority rules, and the best of what comes out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.solvers.greedy.cyclic import compress
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, demands
from jigsaw_opt.solvers.greedy.placed import PlacedJob, place_jobs
from jigsaw_opt.solvers.greedy.placement import balanced, exact, packed
from jigsaw_opt.solvers.greedy.timing import Priority, Schedule, list_schedule

__all__ = ["MAX_BLOCKS", "greedy_timetable", "require_size"]

MAX_BLOCKS = 20_000_000
_RESTART_PIECES = 20_000
_MAX_RESTARTS = 40
_EXACT_JOBS = 12
_LEAST_SWEEPS, _MOST_SWEEPS, _SWEEP_PIECES = 8, 100, 100_000


@dataclass(frozen=True, slots=True)
class _Trial:
    """A schedule, its objective, and its period on a cyclic horizon."""

    value: int
    schedule: Schedule
    period_us: int | None


def greedy_timetable(pieces: Pieces, seed: int = 0) -> Timetable | None:
    """A timetable by list scheduling.

    Parameters
    ----------
    pieces
        The instance, cut; either horizon, any objective.
    seed
        Seeds the restarts on small instances; the same seed gives the same timetable.

    Returns
    -------
    Timetable or None
        None if no placement was found. That proves nothing.

    Raises
    ------
    TooLargeError
        For more than `MAX_BLOCKS` blocks.
    """
    require_size(pieces)
    asked = demands(pieces)
    if asked is None:
        return None
    layout = Layout(pieces)
    best: _Trial | None = None
    for jobs, priority in _trials(pieces, layout, asked, random.Random(seed)):
        trial = _run(pieces, layout, jobs, priority)
        if best is None or trial.value < best.value:
            best = trial
    return None if best is None else _timetable(pieces, layout, best)


def require_size(pieces: Pieces) -> None:
    """Refuse an instance whose plan would not fit into memory.

    Raises
    ------
    TooLargeError
        For more than `MAX_BLOCKS` blocks.
    """
    if pieces.blocks > MAX_BLOCKS:
        raise TooLargeError(
            f"the plan would have {pieces.blocks} blocks; {MAX_BLOCKS} is the most that a plan is written for"
        )


def _trials(
    pieces: Pieces, layout: Layout, asked: Sequence[Demand], draw: random.Random
) -> Iterator[tuple[list[PlacedJob], Priority]]:
    """Placed jobs and the priority to schedule them by; the plain rules first, then randomised ones."""
    weighted = pieces.objective == "weighted_completion"
    plain = _smith if weighted else _tail
    jobs = _place(pieces, layout, asked, [1.0] * len(asked))
    if jobs is None:
        return
    yield jobs, plain
    size = pieces.blocks + pieces.transfers
    for _ in range(min(_MAX_RESTARTS, _RESTART_PIECES // size)):
        noise = [draw.uniform(0.5, 1.5) for _ in asked]
        other = _place(pieces, layout, asked, noise) or jobs
        yield other, _noisy(plain, {id(job): factor for job, factor in zip(other, noise, strict=True)})


def _place(pieces: Pieces, layout: Layout, asked: Sequence[Demand], noise: Sequence[float]) -> list[PlacedJob] | None:
    """The first placement under which every job finds levels: by load, else by memory, else by backtracking."""
    by_load = _by_load(pieces, asked, noise)
    by_size = sorted(by_load, key=lambda index: -asked[index].job.state_bytes - asked[index].job.activation_bytes[-1])
    by_width = sorted(by_size, key=lambda index: -asked[index].job.slots)
    strategies = [(balanced, by_load), (balanced, by_size), (packed, by_size), (packed, by_width)]
    if len(asked) <= _EXACT_JOBS:
        strategies.append((exact, by_width))
    for strategy, order in strategies:
        placement = strategy(layout, asked, order)
        jobs = place_jobs(pieces, layout, asked, placement) if placement is not None else None
        if jobs is not None:
            return jobs
    return None


def _by_load(pieces: Pieces, asked: Sequence[Demand], noise: Sequence[float]) -> list[int]:
    """Order of placement: longest first for a makespan, smallest ratio of work to weight first for completions."""
    work = [max(demand.slot_us.values()) * factor for demand, factor in zip(asked, noise, strict=True)]
    if pieces.objective == "weighted_completion":
        return sorted(range(len(asked)), key=lambda index: work[index] / pieces.jobs[index].weight)
    return sorted(range(len(asked)), key=lambda index: -work[index])


def _tail(job: PlacedJob, left: int) -> float:
    """The job with the longest time still to run goes first."""
    return -left * job.iteration_us


def _smith(job: PlacedJob, left: int) -> float:
    """The job with the least time still to run per weight goes first (Smith's rule)."""
    return left * job.iteration_us / job.job.weight


def _noisy(plain: Priority, noise: dict[int, float]) -> Priority:
    return lambda job, left: plain(job, left) * noise[id(job)]


def _run(pieces: Pieces, layout: Layout, jobs: list[PlacedJob], priority: Priority) -> _Trial:
    gpus, links = len(layout.gpus), layout.links
    schedule = list_schedule(jobs, gpus, links, priority)
    if pieces.horizon == "cyclic":
        sweeps = max(_LEAST_SWEEPS, min(_MOST_SWEEPS, _SWEEP_PIECES // (pieces.blocks + pieces.transfers)))
        period, schedule = compress(schedule, gpus, links, sweeps)
        return _Trial(period, schedule, period)
    ends = [progress.end for progress in schedule.jobs]
    if pieces.objective == "makespan":
        return _Trial(max(ends), schedule, None)
    return _Trial(sum(job.weight * end for job, end in zip(pieces.jobs, ends, strict=True)), schedule, None)


def _timetable(pieces: Pieces, layout: Layout, trial: _Trial) -> Timetable:
    decisions = [
        JobDecision([layout.gpus[gpu] for gpu in done.job.gpus], done.levels, done.blocks, done.transfers)
        for done in trial.schedule.jobs
    ]
    return Timetable(assemble(pieces, decisions), trial.period_us)

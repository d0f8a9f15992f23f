"""From pieces to a timetable: some placements, some priority rules, and the best of what comes out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul

from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.solvers.greedy.cyclic import compress
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, demands
from jigsaw_opt.solvers.greedy.placed import PlacedJob, place_jobs
from jigsaw_opt.solvers.greedy.placement import balanced, exact, packed
from jigsaw_opt.solvers.greedy.timing import Schedule, list_schedule

__all__ = ["MAX_BLOCKS", "greedy_timetable", "require_size", "timetables"]

MAX_BLOCKS = 20_000_000
_TRIAL_PIECES = 150_000
_MAX_TRIALS = 200
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
        Seeds the local search on small instances; the same seed gives the same timetable.

    Returns
    -------
    Timetable or None
        None if no placement was found. That proves nothing.

    Raises
    ------
    TooLargeError
        For more than `MAX_BLOCKS` blocks.
    """
    best = None
    for timetable in timetables(pieces, seed):
        best = timetable or best
    return best


def timetables(pieces: Pieces, seed: int = 0) -> Iterator[Timetable | None]:
    """The trials of `greedy_timetable` one by one: a timetable where one is the best so far, else None."""
    require_size(pieces)
    asked = demands(pieces)
    if asked is None:
        return
    search = _Search(pieces, asked, random.Random(seed))
    keys = _Keys([1.0] * len(asked), [1.0] * len(asked), [0] * len(asked))
    best = search.trial(keys)
    if best is None:
        return
    yield search.timetable(best)
    for _ in range(min(_MAX_TRIALS, _TRIAL_PIECES // (pieces.blocks + pieces.transfers))):
        other_keys = search.mutated(keys, best)
        other = search.trial(other_keys)
        if other is None or other.value > best.value:
            yield None
            continue
        yield search.timetable(other) if other.value < best.value else None
        best, keys = other, other_keys


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


@dataclass(frozen=True, slots=True)
class _Keys:
    """What the local search changes, by job.

    Parameters
    ----------
    place, urgency
        Factors on the order of placement and on the priority; 1 is the plain rule.
    hold_us
        Earliest start; list scheduling alone never waits for a better job to come.
    """

    place: list[float]
    urgency: list[float]
    hold_us: list[int]


class _Search:
    """Runs the heuristic for given keys."""

    def __init__(self, pieces: Pieces, asked: Sequence[Demand], draw: random.Random) -> None:
        self.pieces, self.asked, self.draw = pieces, asked, draw
        self.layout = Layout(pieces)
        self.weighted = pieces.objective == "weighted_completion"
        size = pieces.blocks + pieces.transfers
        self.sweeps = max(_LEAST_SWEEPS, min(_MOST_SWEEPS, _SWEEP_PIECES // size))

    def trial(self, keys: _Keys) -> _Trial | None:
        """The heuristic's schedule under `keys`; None where it finds no placement."""
        jobs = self._place(keys.place)
        if jobs is None:
            return None
        gpus, links = len(self.layout.gpus), self.layout.links
        rule = _smith if self.weighted else _tail
        schedule = list_schedule(jobs, gpus, links, rule, keys.urgency, keys.hold_us)
        if self.pieces.horizon == "cyclic":
            period, schedule = compress(schedule, gpus, links, self.sweeps)
            return _Trial(period, schedule, period)
        ends = [progress.end for progress in schedule.jobs]
        weights = [job.weight for job in self.pieces.jobs]
        value = sum(map(mul, weights, ends)) if self.weighted else max(ends)
        return _Trial(value, schedule, None)

    def mutated(self, keys: _Keys, best: _Trial) -> _Keys:
        """The keys with one to three of them drawn again; a job is held until another one begins or ends."""
        draw, count = self.draw, len(self.asked)
        changed = _Keys(list(keys.place), list(keys.urgency), list(keys.hold_us))
        for _ in range(draw.randint(1, 3)):
            index, kind = draw.randrange(count), draw.randrange(5)
            if kind == 0:
                other = best.schedule.jobs[draw.randrange(count)]
                changed.hold_us[index] = draw.choice((0, 0, other.job.job.release_us, min(other.blocks[0]), other.end))
            else:
                (changed.place if kind % 2 else changed.urgency)[index] = draw.uniform(0.3, 1.7)
        return changed

    def timetable(self, trial: _Trial) -> Timetable:
        """The timetable of a trial."""
        decisions = [
            JobDecision([self.layout.gpus[gpu] for gpu in done.job.gpus], done.levels, done.blocks, done.transfers)
            for done in trial.schedule.jobs
        ]
        return Timetable(assemble(self.pieces, decisions), trial.period_us)

    def _place(self, factors: Sequence[float]) -> list[PlacedJob] | None:
        """The first placement under which every job finds levels: by load, else by memory, else by backtracking."""
        asked = self.asked
        by_load = self._by_load(factors)
        by_size = sorted(by_load, key=lambda i: -asked[i].job.state_bytes - asked[i].job.activation_bytes[-1])
        by_width = sorted(by_size, key=lambda i: -asked[i].job.slots)
        strategies = [(balanced, by_load), (balanced, by_size), (packed, by_size), (packed, by_width)]
        if len(asked) <= _EXACT_JOBS:
            strategies.append((exact, by_width))
        for strategy, order in strategies:
            placement = strategy(self.layout, asked, order)
            jobs = place_jobs(self.pieces, self.layout, asked, placement) if placement is not None else None
            if jobs is not None:
                return jobs
        return None

    def _by_load(self, factors: Sequence[float]) -> list[int]:
        """Longest first for a makespan, smallest ratio of work to weight first for completions."""
        work = [max(demand.slot_us.values()) * factor for demand, factor in zip(self.asked, factors, strict=True)]
        if self.weighted:
            return sorted(range(len(work)), key=lambda i: work[i] / self.pieces.jobs[i].weight)
        return sorted(range(len(work)), key=lambda i: -work[i])


def _tail(job: PlacedJob, left: int) -> float:
    """The job with the longest time still to run goes first."""
    return -left * job.iteration_us


def _smith(job: PlacedJob, left: int) -> float:
    """The job with the least time still to run per weight goes first (Smith's rule)."""
    return left * job.iteration_us / job.job.weight

"""The throughput of a group of jobs, whichever way its jobs take turns, and their timetable by stages.

The timetable says how often each job iterates in a period, who goes first, and how deep. The stages of an iteration
follow each other, and so do the iterations of a job. Two loaders prepare data, each for its own jobs; every GPU
computes for one job at a time; one network exchanges gradients. On each of them iterations pass in one order, the
period's sequence. Unlike in a rotation a stage starts as soon as it can, and a job whose iterations are short does
several in a period.

With `staircase`, worker ``k`` of ``w`` does ``k/w`` of its backward pass, two thirds of the GPU stage. Half of the jobs
count their workers in the order of the GPUs and half against it, so a shallow worker of one shares a GPU with a deep
worker of another. The load of a GPU is then linear in its place, so only the first and the last GPU matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.interleave.rotation import SLOWDOWN, Group, StagedJob, Timing, rotation_periods

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_BACKWARD = Fraction(2, 3)
"""Share of the GPU stage that is the backward pass; traces do not split it."""
_EXCHANGED = Fraction(3, 4)
"""Bytes that a staircase exchanges over those of full depth: each layer group is reduced among its contributors only,
and gathered by all, ``((c - 1) + (w - 1)) / 2(w - 1)`` on average over ``c = 1..w``."""
_MOST_ITERATIONS = 8
"""Iterations of a job in a period at most."""
_TRIALS = 6
"""Numbers of iterations for which orders are tried."""
_ROUNDS = 6
"""Rounds after which the timing of an order has settled."""


class GroupTimetable(NamedTuple):
    """A period of a group.

    `iterations`: number of iterations of each job in a period. `staircase`: whether the workers of jobs that may do so
    stop early. `sequence`: jobs, by their place in the group, in the order in which their iterations pass. `loader`:
    which of the two loads the data of each job. `backward`: jobs whose deepest worker is on the last GPU; the others'
    is on the first.
    """

    period_us: int
    iterations: tuple[int, ...]
    staircase: bool
    sequence: tuple[int, ...]
    loader: tuple[int, ...]
    backward: tuple[bool, ...]


class _GroupStages(NamedTuple):
    """Times of an iteration's stages: loading, computing on the first and on the last GPU, exchange."""

    load: int
    first: int
    last: int
    network: int

    @property
    def chain(self) -> int:
        """Microseconds from the start of an iteration to its end where nothing is in the way."""
        return self.load + max(self.first, self.last) + self.network


class _GroupTrial(NamedTuple):
    """The stages and iterations of a timetable to be tried, its least period, and the loaders that allow it."""

    least: int
    stages: tuple[_GroupStages, ...]
    iterations: tuple[int, ...]
    loaders: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1 << 16)
def timetable(group: Group) -> GroupTimetable:
    """Return the timetable with the largest sum of normalised throughputs that is found.

    Depths are full, or the staircase for every job that allows it, whichever is better.
    """
    full = _best(group, [tuple(map(_full, group))])
    if any(job.staircase for job in group):
        bent = _best(group, list(_orientations(group)))._replace(staircase=True)
        return max(full, bent, key=lambda found: _value(group, found.iterations, found.period_us))
    return full


def saved_alone_us(job: StagedJob) -> int:
    """Return by how much a staircase shortens an iteration of a job that shares nothing.

    Its deepest worker still does the whole backward pass, so only what of the exchange is not hidden behind other
    stages shrinks, and that in proportion: what is exchanged last, with the fewest contributors, shrinks most.
    """
    bare = min(job.network_us, job.alone_us - job.load_us - job.compute_us)
    return max(0, int(bare * (1 - _EXCHANGED))) if job.staircase else 0


def _value(group: Group, iterations: Sequence[int], period_us: int) -> float:
    return sum(number * job.alone_us for number, job in zip(iterations, group, strict=True)) / period_us


def _full(job: StagedJob) -> _GroupStages:
    return _GroupStages(job.load_us, job.compute_us, job.compute_us, job.network_us)


def _orientations(group: Group) -> Iterator[tuple[_GroupStages, ...]]:
    """Yield each job with its deepest worker on the first or the last GPU; the first job's is on the first."""
    choices = []
    for job in group:
        stages = _full(job)
        if job.staircase:
            shallow = ceil(job.compute_us * (1 - _BACKWARD + _BACKWARD / job.gpus))
            stages = stages._replace(last=shallow, network=ceil(job.network_us * _EXCHANGED))
        choices.append((stages, stages._replace(first=stages.last, last=stages.first)))
    yield from product(choices[0][:1], *(dict.fromkeys(choice) for choice in choices[1:]))


def _best(group: Group, depths: Sequence[tuple[_GroupStages, ...]]) -> GroupTimetable:
    """Time trials by falling upper bound of their value, until none left can be better; return the best."""
    trials = [trial for stages in depths for trial in _trials(stages)]
    trials.sort(key=lambda trial: _value(group, trial.iterations, trial.least), reverse=True)
    best, value = None, 0.0
    for trial in trials[:_TRIALS]:
        if _value(group, trial.iterations, trial.least) <= value:
            break
        found = _planned(trial)
        if _value(group, found.iterations, found.period_us) > value:
            best, value = found, _value(group, found.iterations, found.period_us)
    assert best is not None
    return best


def _trials(stages: tuple[_GroupStages, ...]) -> Iterator[_GroupTrial]:
    """Yield the numbers of iterations that fit into the longest one, as far as the GPUs can hold them."""
    longest = max(one.chain for one in stages)
    often = [range(1, min(_MOST_ITERATIONS, longest // one.chain) + 1) for one in stages]
    # The loaders are alike, so the first job is with the first of them.
    loaders = [loader for loader in product((0, 1), repeat=len(stages)) if loader[0] == 0]
    for iterations in product(*often):
        gpu = max(_load(iterations, [one.first for one in stages]), _load(iterations, [one.last for one in stages]))
        # Several iterations are tried only as far as the GPUs do all of them within the longest chain.
        if gpu > longest and max(iterations) > 1:
            continue
        loads = [one.load * number for one, number in zip(stages, iterations, strict=True)]
        split = {loader: max(_halves(loads, loader)) for loader in loaders}
        network = _load(iterations, [one.network for one in stages])
        chain = max(number * one.chain for one, number in zip(stages, iterations, strict=True))
        # No period is shorter than the work of any resource, or than the iterations of one job in turn.
        least = max(gpu, network, chain, min(split.values()))
        yield _GroupTrial(least, stages, iterations, tuple(loader for loader in loaders if split[loader] <= least))


def _load(iterations: Sequence[int], times: Sequence[int]) -> int:
    return sum(number * time for number, time in zip(iterations, times, strict=True))


def _halves(loads: Sequence[int], loader: Sequence[int]) -> tuple[int, int]:
    second = _load(loader, loads)
    return sum(loads) - second, second


def _planned(trial: _GroupTrial) -> GroupTimetable:
    """Return the least period over the loaders, and over the sequences that spread the iterations of a job evenly."""
    period, sequence, loader = min(_periods(trial), key=lambda found: found[0])
    backward = tuple(stages.last > stages.first for stages in trial.stages)
    return GroupTimetable(period, trial.iterations, False, sequence, loader, backward)


def _periods(trial: _GroupTrial) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    for sequence, loader in product(_sequences(trial.iterations), trial.loaders):
        period = _timed(trial.stages, sequence, loader)
        yield period, sequence, loader
        if period == trial.least:
            break


def _sequences(iterations: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(1, len(iterations))):
        # A sequence repeats, so the first job may lead. Iteration ``k`` of ``n`` stands at ``(2k + 1) / 2n`` of the
        # period, which spreads those of a job evenly; ties go by rank.
        rank = {job: place for place, job in enumerate((0, *order))}
        slots = [
            (Fraction(2 * k + 1, 2 * number), rank[job], job)
            for job, number in enumerate(iterations)
            for k in range(number)
        ]
        yield tuple(job for *_, job in sorted(slots))


def _timed(stages: Sequence[_GroupStages], sequence: Sequence[int], loader: Sequence[int]) -> int:
    """Return the period of a sequence: by how much the ends of a round are later than those of the round before.

    If the ends of all stages move by at most that much, the first of the two rounds can be repeated with this period.
    """
    ends = [0] * len(stages)
    loaders = [0, 0]
    first = last = network = 0
    before: list[int] = []
    for _ in range(_ROUNDS):
        before = [*ends, *loaders, first, last, network]
        for job in sequence:
            one = stages[job]
            loaded = loaders[loader[job]] = max(ends[job], loaders[loader[job]]) + one.load
            first, last = max(first, loaded) + one.first, max(last, loaded) + one.last
            network = ends[job] = max(first, last, network) + one.network
    return max(end - start for end, start in zip([*ends, *loaders, first, last, network], before, strict=True))


class Round(NamedTuple):
    """One round of a group on the same GPUs.

    `iterations`: number of iterations of each job in it. `staircase`: whether jobs that may stop their backward passes
    early do so.
    """

    time_us: float
    iterations: tuple[int, ...]
    staircase: bool


@lru_cache(maxsize=1 << 16)
def group_round(group: Group, timing: Timing) -> Round:
    """Return the round of one group."""
    if len(group) == 1:
        saved = saved_alone_us(group[0]) if timing == "planned" else 0
        return Round(float(group[0].alone_us - saved), (1,), saved > 0)
    slowdown = float(SLOWDOWN[len(group) - 1])
    if timing == "planned":
        found = timetable(group)
        return Round(found.period_us * slowdown, found.iterations, found.staircase)
    return Round(float(rotation_periods([group], timing)[0]) * slowdown, (1,) * len(group), False)


def throughputs(groups: Sequence[Group], timing: Timing) -> NDArray[np.float64]:
    """Return the normalised throughput of groups of one size: the sum of the jobs' speeds relative to those alone.

    One number for each group; 1 for a job alone.

    `groups`: at least one group, all of as many jobs.
    """
    import numpy as np

    size = len(groups[0])
    # Rotations of all groups are found at once in arrays, timetables one by one.
    if timing == "planned":
        return np.array([_throughput(group, group_round(group, timing)) for group in groups])
    if size == 1:
        return np.ones(len(groups))
    alone = np.array([[job.alone_us for job in group] for group in groups])
    return np.asarray(alone.sum(axis=1) / (rotation_periods(groups, timing) * float(SLOWDOWN[size - 1])))


def normalised_throughput(groups: Mapping[Group, int], timing: Timing) -> float:
    """Return the sum of the speeds of all jobs in their groups, each relative to its speed alone."""
    return sum(number * _throughput(group, group_round(group, timing)) for group, number in groups.items())


def _throughput(group: Group, done: Round) -> float:
    return sum(number * job.alone_us for number, job in zip(done.iterations, group, strict=True)) / done.time_us

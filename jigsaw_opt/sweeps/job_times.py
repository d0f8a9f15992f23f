"""What two policies come to job by job: who loses, of which sizes and users, and who waits longest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.results.metrics import quantile

_HOUR_US = 3_600_000_000
_TENTH, _LONGEST = 0.1, 0.99
JobTimes: TypeAlias = Sequence[Sequence[int | None]]
"""By job in the order of the workload: when it ended or None, and for how long it held GPUs, in microseconds."""


@dataclass(frozen=True, slots=True)
class Group:
    """The effect of a change of policy on jobs that have something in common.

    `name`: what they have in common, such as ``5-8`` GPUs, or their user. `jobs, later, hit`: how many jobs there are,
    how many of them end later than before, and how many are among the tenth of all jobs that is hit worst. `before_h,
    after_h`: mean hours from submission to end.
    """

    name: str
    jobs: int
    later: int
    hit: int
    before_h: float
    after_h: float


@dataclass(frozen=True, slots=True)
class Waits:
    """The longest waits under a policy: all time from submission to end without GPUs counts.

    `p99_h, longest_h`: hours that 99 % of the jobs do not exceed, and those of the job that waits longest. `job, gpus`:
    that job's name, and how many GPUs it asks for. `sizes`: how many of the jobs that wait at least `p99_h`, and at
    all, ask for how many GPUs, the most jobs first.
    """

    p99_h: float
    longest_h: float
    job: str
    gpus: int
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The effect of a change of policy, job by job.

    `jobs`: number of jobs that end under both policies, but for those that are `held`. `later, barely`: numbers of
    these jobs that end later than before, by more than a round and a restart; and by no more. `hit`: those of the tenth
    of `jobs` that is hit worst which end later: `later` at most. `hit_later_h`: by how many hours these end later in
    the mean; 0 where there are none. `sizes`: by how many GPUs jobs ask for, the fewest first. `users`: by user where
    the trace tells users, those with the most jobs in `hit` first. `waits_before, waits_after`: who waits longest under
    either policy. `held`: jobs that something else held back (`TraceJob.held_by`): no policy decides when they start,
    so none of the other figures has them.
    """

    jobs: int
    later: int
    barely: int
    hit: int
    hit_later_h: float
    sizes: Sequence[Group]
    users: Sequence[Group]
    waits_before: Waits
    waits_after: Waits
    held: int


def job_times(outcome: SimulationOutcome) -> list[list[int | None]]:
    """Return when each job ended, or None, and for how long it held GPUs, as values of JSON."""
    held = outcome.held_us()
    return [[record.finish_us, held[record.index]] for record in outcome.jobs]


def are_job_times(value: object) -> bool:
    """Return whether a value of a row is what `job_times` gives."""
    return isinstance(value, list) and all(
        isinstance(span, list) and len(span) == 2 and _are_times(*span) for span in value
    )


def _are_times(finish_us: object, held_us: object) -> bool:
    return (finish_us is None or type(finish_us) is int) and type(held_us) is int


def size_class(gpus: int) -> str:
    """Return the class of a number of GPUs: each class goes up to a power of two, as in ``5-8``."""
    most = 1 << (gpus - 1).bit_length()
    return str(most) if most <= 2 else f"{most // 2 + 1}-{most}"


def job_changes(jobs: Sequence[TraceJob], before: JobTimes, after: JobTimes, least_us: int = 0) -> JobChanges | None:
    """Return what a change of policy does job by job; None where no job counts.

    `least_us`: microseconds that a simulation adds by itself, by its rounds and restarts: who loses no more does not
    lose.
    """
    lasting = {
        k: (old - jobs[k].submit_us, new - jobs[k].submit_us)
        for k, ((old, _), (new, _)) in enumerate(zip(before, after, strict=True))
        if old is not None and new is not None and jobs[k].held_by is None
    }
    if not lasting:
        return None
    delay_us = {k: new - old for k, (old, new) in lasting.items()}
    worst = sorted(delay_us, key=lambda k: -delay_us[k])[: math.ceil(_TENTH * len(delay_us))]
    hit = frozenset(k for k in worst if delay_us[k] > least_us)

    def groups(name_of: Callable[[TraceJob], str | None]) -> list[Group]:
        members: dict[str, list[int]] = {}
        for k in lasting:
            if (name := name_of(jobs[k])) is not None:
                members.setdefault(name, []).append(k)
        return [_group(name, own, lasting, hit, least_us) for name, own in members.items()]

    users = groups(lambda job: job.user)
    sizes = groups(lambda job: size_class(job.gpus))
    return JobChanges(
        len(lasting),
        sum(time_us > least_us for time_us in delay_us.values()),
        sum(0 < time_us <= least_us for time_us in delay_us.values()),
        len(hit),
        fmean(delay_us[k] for k in hit) / _HOUR_US if hit else 0.0,
        sorted(sizes, key=lambda size: int(size.name.rpartition("-")[2])),
        sorted(users, key=lambda user: (-user.hit, -user.later, user.name)),
        _waits(jobs, {k: old - (before[k][1] or 0) for k, (old, _) in lasting.items()}),
        _waits(jobs, {k: new - (after[k][1] or 0) for k, (_, new) in lasting.items()}),
        sum(job.held_by is not None for job in jobs),
    )


def _group(
    name: str, own: Sequence[int], lasting: Mapping[int, tuple[int, int]], hit: frozenset[int], least_us: int
) -> Group:
    before, after = ([lasting[k][which] for k in own] for which in (0, 1))
    later = sum(new > old + least_us for old, new in zip(before, after, strict=True))
    return Group(name, len(own), later, len(hit.intersection(own)), fmean(before) / _HOUR_US, fmean(after) / _HOUR_US)


def _waits(jobs: Sequence[TraceJob], waited_us: Mapping[int, int]) -> Waits:
    longest = max(waited_us, key=lambda k: (waited_us[k], jobs[k].gpus))
    p99_us = quantile(list(waited_us.values()), _LONGEST) or 0
    starved = Counter(size_class(jobs[k].gpus) for k, us in waited_us.items() if us and us >= p99_us)
    job = jobs[longest]
    return Waits(p99_us / _HOUR_US, waited_us[longest] / _HOUR_US, job.name, job.gpus, dict(starved.most_common()))

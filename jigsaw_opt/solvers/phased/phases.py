"""Phases of a group by a policy: which jobs run at the same time, in which order, at which ratio of iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol, TypeVar

from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Block, Execution, JobPlan, Phase, Plan, ShapedJobPlan, Transfer
from jigsaw_opt.problem.shape import ShapedJob

__all__ = ["PhasePolicy", "RunningRule", "Timing", "compact", "phases_of"]

Timing = Callable[[Mapping[str, int]], Plan]
"""A cyclic plan of jobs, with so many iterations of each, on the GPUs that they have."""


class RunningRule(Protocol):
    """Says which jobs of a group run."""

    def counts(
        self, jobs: Mapping[str, Job | ShapedJob], remaining: Mapping[str, int], begun: set[str], now: int
    ) -> dict[str, int]:
        """Iterations in a period of each job that runs from now on; none before a release that is waited for.

        Parameters
        ----------
        jobs
            The jobs of the group by name.
        remaining
            Iterations that jobs have left.
        begun
            Jobs among them that have begun.
        now
            Time in microseconds.
        """


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """Jobs in an order, each beside those that run if it may; then without a pause to its end.

    Parameters
    ----------
    order
        Names of the jobs, those that run first in front.
    admits
        Whether a job may run beside those that do, one at least.
    ratio
        Iterations of each job in a period, from how many are left.
    """

    order: Sequence[str]
    admits: Callable[[str, Sequence[str]], bool]
    ratio: Callable[[Mapping[str, int]], dict[str, int]]

    def counts(
        self, jobs: Mapping[str, Job | ShapedJob], remaining: Mapping[str, int], begun: set[str], now: int
    ) -> dict[str, int]:
        """Iterations in a period of each job that runs."""
        running = [name for name in self.order if name in begun]
        for name in self.order:
            waits = name in remaining and name not in begun and jobs[name].release_us <= now
            if waits and (not running or self.admits(name, running)):
                running.append(name)
        return self.ratio({name: remaining[name] for name in running}) if running else {}


def phases_of(jobs: Mapping[str, Job | ShapedJob], policy: RunningRule, timing: Timing) -> list[Phase]:
    """Phases one after another.

    Parameters
    ----------
    jobs
        The jobs of the group by name.
    policy
        Which of them run together.
    timing
        Makes the cyclic plan of a phase.
    """
    phases: list[Phase] = []
    remaining = {name: job.iterations for name, job in jobs.items()}
    begun: set[str] = set()
    now = 0
    while remaining:
        later = [jobs[name].release_us for name in remaining if jobs[name].release_us > now]
        counts = policy.counts(jobs, remaining, begun, now)
        if not counts:
            now = min(later)
            continue
        left = {name: remaining[name] for name in counts}
        phase = _phase(left, counts, now, min(later, default=None), timing)
        for job in phase.jobs:
            remaining[job.name] -= phase.count * len(job.iterations)
        remaining = {name: left for name, left in remaining.items() if left}
        begun = (begun | counts.keys()) & remaining.keys()
        phases.append(phase)
        now = phase.end_us
    return phases


def _phase(
    remaining: Mapping[str, int], counts: Mapping[str, int], now: int, next_us: int | None, timing: Timing
) -> Phase:
    """As many repetitions as every job has iterations for, or as there is time for before the next release."""
    plan = timing(counts)
    period_us = plan.period_us or plan.objective
    repeats = min(left // counts[name] for name, left in remaining.items())
    if next_us is not None:
        repeats = min(repeats, max(1, (next_us - now) // period_us))
    return Phase(now, period_us, repeats, compact(plan.jobs, period_us))


def compact(jobs: Sequence[JobPlan | ShapedJobPlan], period_us: int) -> tuple[JobPlan | ShapedJobPlan, ...]:
    """The same cyclic plan with the moment of its period as 0 from which on one repetition takes least time."""
    times = [[(it.start_us, it.end_us) for it in _operations(job)] for job in jobs]
    starts = [min(start for start, _ in own) for own in times]
    spans = [max(end for _, end in own) - start for own, start in zip(times, starts, strict=True)]
    origin = _shortest_from([start % period_us for start in starts], spans, period_us)
    moved = ((start - origin) % period_us - start for start in starts)
    return tuple(_later(job, by) for job, by in zip(jobs, moved, strict=True))


def _shortest_from(starts: Sequence[int], spans: Sequence[int], period_us: int) -> int:
    """The start from which on all jobs, each at its next start and over its span, end soonest.

    What starts before it comes a period later.
    """
    order = sorted(range(len(starts)), key=starts.__getitem__)
    ends = [starts[k] + spans[k] for k in order]
    before = accumulate(ends[:-1], max, initial=-period_us)
    after = [*accumulate(reversed(ends), max)][::-1]
    last_us: dict[int, int] = {}
    for k, earlier, later in zip(order, before, after, strict=True):
        last_us.setdefault(starts[k], max(earlier + period_us, later) - starts[k])
    return min(starts, key=last_us.__getitem__)


def _operations(job: JobPlan | ShapedJobPlan) -> Iterator[Block | Transfer | Execution]:
    for iteration in job.iterations:
        yield from iteration.blocks
        yield from iteration.transfers


_Timed = TypeVar("_Timed", Block, Transfer, Execution)


def _later(job: JobPlan | ShapedJobPlan, by: int) -> JobPlan | ShapedJobPlan:
    def later(operations: Sequence[_Timed]) -> tuple[_Timed, ...]:
        return tuple(replace(it, start_us=it.start_us + by, end_us=it.end_us + by) for it in operations)

    if isinstance(job, JobPlan):
        plain = (replace(it, blocks=later(it.blocks), transfers=later(it.transfers)) for it in job.iterations)
        return replace(job, iterations=tuple(plain))
    own = (replace(it, blocks=later(it.blocks), transfers=later(it.transfers)) for it in job.iterations)
    return replace(job, iterations=tuple(own))

"""Phases of a group by a policy: which jobs run at the same time, in which order, at which ratio of iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias

from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob

Jobs: TypeAlias = Mapping[str, Job | TaskGraphJob]
"""Jobs by name."""
Gpus = Mapping[str, Sequence[str]]
"""By name of a job, the names of its workers' or slots' GPUs."""
Timing = Callable[[Mapping[str, int], Gpus], Plan]
"""A cyclic plan of jobs, with so many iterations of each, on the GPUs that they have."""


class LastPhase(NamedTuple):
    """The last phase of a job so far: its GPUs there, when it ended, and the number of the phase in the group."""

    gpus: tuple[str, ...]
    end_us: int
    number: int


class RunningJobs(NamedTuple):
    """Jobs that run.

    `counts`: iterations of each in a period. `gpus`: where these and maybe others are. `plan`: their cyclic plan, if it
    is made already. `until_us`: when that ends at the latest; None for no such moment.
    """

    counts: Mapping[str, int]
    gpus: Gpus
    plan: Plan | None = None
    until_us: int | None = None


@dataclass(slots=True)
class GroupProgress:
    """Progress of the jobs of a group.

    `remaining`: iterations that jobs have left; those that have ended are not there. `now_us`: when the last phase has
    ended. `last`: by name of a job that has begun and has not ended, its last phase.
    """

    remaining: dict[str, int]
    now_us: int = 0
    last: dict[str, LastPhase] = field(default_factory=dict)
    phases: int = 0

    def goes_on(self, name: str) -> bool:
        """Return whether a job was in the phase that ended last."""
        return name in self.last and self.last[name].number == self.phases - 1

    def ready_us(self, job: Job | TaskGraphJob) -> int:
        """Return when a job may begin, or go on after it stops now at the latest (specification: release, moves)."""
        if job.restart_us is None or job.name not in self.last:
            return job.release_us
        return self.last[job.name].end_us + job.restart_us


class RunningRule(Protocol):
    """Rule that says which jobs of a group run."""

    def running(self, jobs: Jobs, progress: GroupProgress) -> RunningJobs:
        """Return the jobs that run from now on; none before a moment that is waited for.

        Parameters
        ----------
        jobs
            The jobs of the group by name.
        progress
            Their progress.
        """


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """Jobs in an order, each beside those that run if it may; then without a pause to its end.

    `order`: names of the jobs, those that run first in front. `admits`: whether a job may run beside those that do, one
    at least. `ratio`: iterations of each job in a period, from how many are left. `waits`: whether no job begins before
    those in front of it, even where it could.
    """

    order: Sequence[str]
    admits: Callable[[str, Sequence[str]], bool]
    ratio: Callable[[Mapping[str, int]], dict[str, int]]
    gpus: Gpus
    waits: bool = False

    def running(self, jobs: Jobs, progress: GroupProgress) -> RunningJobs:
        """Return the jobs that have begun, and those that may run beside them.

        `jobs`: the jobs of the group by name.
        """
        remaining, begun = progress.remaining, progress.last
        # What has begun goes on first: a job of this policy does not pause.
        running = [name for name in self.order if name in begun]
        for name in self.order:
            if name not in remaining or name in begun:
                continue
            if jobs[name].release_us <= progress.now_us and (not running or self.admits(name, running)):
                running.append(name)
            elif self.waits:
                break
        counts = self.ratio({name: remaining[name] for name in running}) if running else {}
        return RunningJobs(counts, self.gpus)


def phases_of(jobs: Jobs, policy: RunningRule, timing: Timing) -> list[Phase]:
    """Return phases one after another, until no iteration is left.

    `jobs`: the jobs of the group by name.
    """
    phases: list[Phase] = []
    progress = GroupProgress({name: job.iterations for name, job in jobs.items()})
    remaining, last = progress.remaining, progress.last
    while remaining:
        running = policy.running(jobs, progress)
        waiting = (progress.ready_us(jobs[name]) for name in remaining if name not in running.counts)
        until = [] if running.until_us is None else [running.until_us]
        later = [moment for moment in [*waiting, *until] if moment > progress.now_us]
        # No job runs, so some job is still to be released or to restart: `later` is not empty.
        if not running.counts:
            progress.now_us = min(later)
            continue
        phase = _phase(remaining, running, progress.now_us, min(later, default=None), timing)
        for job in phase.jobs:
            remaining[job.name] -= phase.count * len(job.iterations)
            last[job.name] = LastPhase(job.gpus, phase.end_of(job), len(phases))
            if not remaining[job.name]:
                del remaining[job.name], last[job.name]
        phases.append(phase)
        progress.phases, progress.now_us = len(phases), phase.end_us
    return phases


def _phase(remaining: Mapping[str, int], running: RunningJobs, now: int, next_us: int | None, timing: Timing) -> Phase:
    """Return a phase of as many repetitions as iterations and the time before the next release allow."""
    plan = running.plan or timing(running.counts, running.gpus)
    period_us = plan.period_us or plan.objective
    # The job that has the fewest repetitions left ends the phase. What the others have left over goes into the next
    # one.
    repeats = min(remaining[name] // count for name, count in running.counts.items())
    if next_us is not None:
        # One repetition at least takes place even if it ends after the event: a phase without any would change nothing.
        repeats = min(repeats, max(1, (next_us - now) // period_us))
    return Phase(now, period_us, repeats, compact(plan.jobs, period_us))


def compact(jobs: Sequence[JobPlan | TaskGraphJobPlan], period_us: int) -> tuple[JobPlan | TaskGraphJobPlan, ...]:
    """Return the same cyclic plan, its time 0 moved to where one repetition takes the shortest span."""
    starts = [job.start_us for job in jobs]
    spans = [job.end_us - job.start_us for job in jobs]
    # A cyclic plan is the same from any origin. A phase, however, ends only with its last operation, and the origin
    # decides how long after the last period that is.
    origin = _shortest_from([start % period_us for start in starts], spans, period_us)
    moved = ((start - origin) % period_us - start for start in starts)
    return tuple(job.moved(by.__add__) for job, by in zip(jobs, moved, strict=True))


def _shortest_from(starts: Sequence[int], spans: Sequence[int], period_us: int) -> int:
    """Return the start from which on all jobs, each at its next start and over its span, end soonest.

    What starts before it comes a period later.
    """
    order = sorted(range(len(starts)), key=starts.__getitem__)
    ends = [starts[k] + spans[k] for k in order]
    # For each start in order: the last end of jobs that start before it, and of those that start there or later. The
    # initial value becomes 0 when the period is added, so that it never decides.
    before = accumulate(ends[:-1], max, initial=-period_us)
    after = [*accumulate(reversed(ends), max)][::-1]
    last_us: dict[int, int] = {}
    for k, earlier, later in zip(order, before, after, strict=True):
        # Jobs with the same start all begin at it. Only the first in order counts none of them as a period later.
        last_us.setdefault(starts[k], max(earlier + period_us, later) - starts[k])
    return min(starts, key=last_us.__getitem__)

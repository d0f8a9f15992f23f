"""Where the time of a job goes before, between and in the phases of a plan that counts their repetitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan
from jigsaw_opt.solvers.explanation.breakdown import Explainer, require_job
from jigsaw_opt.solvers.explanation.chain import StepKind
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder

StretchKind = Literal["release", "before", "phase", "seam"]


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Breakdown of the time of a job in a phase.

    `group, phase`: numbers of the group, and of the phase in it, from 0. `others`: jobs of the phase beside it.
    `period_us, repeats`: of the phase, in microseconds, and how often it takes place. `iterations`: of the job in one
    repetition. `time_us`: by kind, what the critical chain of the job has in one period, in microseconds; they add up
    to the period. `first_us`: the same from the start of a repetition to the end of what the job does in it.
    """

    group: int
    phase: int
    others: tuple[str, ...]
    period_us: int
    repeats: int
    iterations: int
    time_us: dict[StepKind, int]
    first_us: dict[StepKind, int]

    @property
    def total_us(self) -> dict[StepKind, int]:
        """Return, by kind, the time of all repetitions in microseconds; the times add up to that from start to end."""
        return {kind: us + (self.repeats - 1) * self.time_us[kind] for kind, us in self.first_us.items()}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a job's time.

    `kind`: `release`: it is not yet released; `before`: it is, and its first phase has not begun; `phase`: it is in
    one; `seam`: it is between two. `start_us, end_us`: from when to when, in microseconds. `held_by`: of `before` and
    `seam`: by GPU of the job, the jobs that are on it in phases meanwhile, where there are any. `within`: of `phase`:
    what it does there.
    """

    kind: StretchKind
    start_us: int
    end_us: int
    held_by: dict[str, tuple[str, ...]]
    within: PhaseTime | None = None


@dataclass(frozen=True, slots=True)
class JobStretches:
    """Breakdown of the time of a job, phase by phase.

    `gpus`: the GPU of each worker or slot. `release_us, end_us`: when it may begin and when it ends, in microseconds.
    `stretches`: in order of time; they fill the time from 0 to its end.
    """

    job: str
    gpus: tuple[str, ...]
    release_us: int
    end_us: int
    stretches: tuple[Stretch, ...]

    @property
    def time_us(self) -> dict[StretchKind, int]:
        """Return, by kind, the time in microseconds; the times add up to the job's end."""
        found: dict[StretchKind, int] = {"release": 0, "before": 0, "phase": 0, "seam": 0}
        for stretch in self.stretches:
            found[stretch.kind] += stretch.end_us - stretch.start_us
        return found


@dataclass(frozen=True, slots=True)
class _JobPart:
    """Part of a job in one phase."""

    group: int
    number: int
    phase: Phase
    job: JobPlan | TaskGraphJobPlan

    @property
    def end_us(self) -> int:
        return self.phase.end_of(self.job)


def explain_phases(instance: Instance, plan: Plan, job: str | None = None) -> list[JobStretches]:
    """Return where the time of jobs of a phased plan goes.

    `job`: name of the only job of interest; None for all in the order of the instance.
    """
    names = [each.name for each in instance.jobs]
    if job is not None:
        require_job(job, names)
    parts = defaultdict[str, list[_JobPart]](list)
    for group, number, phase in plan.all_phases():
        for own in phase.jobs:
            parts[own.name].append(_JobPart(group, number, phase, own))
    within = {
        (part.group, part.number): _times_in(instance, plan, part.phase, job)
        for name in (names if job is None else [job])
        for part in parts[name]
    }
    found = []
    for asked in instance.jobs:
        if job in (None, asked.name):
            others = [part for name in names if name != asked.name for part in parts[name]]
            stretches = _stretches(asked.name, asked.release_us, parts[asked.name], others, within)
            last = parts[asked.name][-1]
            found.append(JobStretches(asked.name, last.job.gpus, asked.release_us, last.end_us, stretches))
    return found


_Times = dict[StepKind, int]
_Within = dict[tuple[int, int], dict[str, tuple[_Times, _Times]]]


def _times_in(instance: Instance, plan: Plan, phase: Phase, job: str | None) -> dict[str, tuple[_Times, _Times]]:
    """Return, by job, what its critical chain has in one period, and from a repetition's start to its end."""
    explainer = Explainer(KeptOrder.of(*plan.alone(instance, phase)))
    names = [each.name for each in phase.jobs] if job is None else [job]
    numbers = [(name, explainer.number(name)) for name in names]
    return {name: (explainer.of(number).time_us, explainer.time_since_0(number)) for name, number in numbers}


def _stretches(
    name: str, release_us: int, parts: Sequence[_JobPart], others: Sequence[_JobPart], within: _Within
) -> tuple[Stretch, ...]:
    """Return the time of a job from 0 to its end; what takes no time is left out."""
    released = min(release_us, parts[0].phase.start_us)
    found, at = [Stretch("release", 0, released, {})], released
    for part in parts:
        begin, phase = part.phase.start_us, part.phase
        kind: StretchKind = "before" if part is parts[0] else "seam"
        found.append(Stretch(kind, at, begin, _held(part.job.gpus, others, at, begin)))
        beside = tuple(job.name for job in phase.jobs if job.name != name)
        times, count = within[part.group, part.number][name], len(part.job.iterations)
        own = PhaseTime(part.group, part.number, beside, phase.cycle_us, phase.count, count, *times)
        at = part.end_us
        found.append(Stretch("phase", begin, at, {}, own))
    return tuple(stretch for stretch in found if stretch.start_us < stretch.end_us)


def _held(gpus: Sequence[str], others: Sequence[_JobPart], start_us: int, end_us: int) -> dict[str, tuple[str, ...]]:
    """Return, by GPU, the jobs that are on it in phases at some time between two moments."""
    there = [other for other in others if other.phase.start_us < end_us and other.end_us > start_us]
    held = {gpu: tuple(dict.fromkeys(other.job.name for other in there if gpu in other.job.gpus)) for gpu in gpus}
    return {gpu: names for gpu, names in held.items() if names}

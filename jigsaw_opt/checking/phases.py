"""Plans group by group and phase by phase, then what joins phases and parts groups (specification: phased-plans).

A plan that lists all iterations is one phase that takes place once, a cyclic one a phase for ever; a phase of a phased
plan is checked as a cyclic plan. Nothing is expanded: the cost does not depend on how often a phase is repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import jigsaw_opt.checking.document as document
from jigsaw_opt.checking.depth import balance
from jigsaw_opt.checking.job_rules import of_jobs
from jigsaw_opt.checking.jobs import CheckedJob, Pairing
from jigsaw_opt.checking.memory import activation_bytes, licences, memory
from jigsaw_opt.checking.power import caps_of
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.instance import Instance, in_a_period
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob


def guarantees(job: Job | TaskGraphJob, path: str, end_us: int, period_us: int | None) -> Iterator[Violation]:
    """Check the deadline of a job, and its guarantee of the mean time an iteration.

    `period_us`: the period of a cyclic plan, at least 1; None on the finite horizon.
    """
    deadline = job.deadline_us
    if deadline is not None and end_us > deadline:
        message = f"ends at {end_us}, {end_us - deadline} us after its deadline at {deadline}"
        yield Violation("deadline", path, message)
    limit, iterations = job.pace_us, job.iterations
    # The product spares a division that would have to be rounded.
    if limit is not None and period_us is not None and period_us > limit * iterations:
        message = (
            f"{iterations} iterations within the period of {period_us} us are "
            f"{period_us - limit * iterations} us slower than {limit} us each"
        )
        yield Violation("pace", path, message)


_Job: TypeAlias = CheckedJob | CheckedTaskGraphJob


@dataclass(frozen=True, slots=True)
class CheckedPhase:
    """A phase with its jobs, as jobs of a cyclic plan where its repetitions are counted.

    `path`: path of its jobs in the plan. `group, number`: number of its group, and its own number in the group.
    `period_us`: its period; None where it is unusable, and what overlaps without one is still an overlap. `jobs`: those
    of its jobs that the instance has. Where repetitions are counted, each has as many iterations as are listed.
    """

    path: str
    group: int
    number: int
    phase: Phase
    period_us: int | None
    jobs: tuple[_Job, ...]

    @property
    def count(self) -> int:
        """Number of repetitions; 1 where it takes place for ever."""
        return 1 if self.phase.repeats is None else self.phase.repeats

    def end_us(self, job: _Job) -> int:
        """Return the end of a job's last operation in the phase, in microseconds (specification: phased-plans)."""
        # Times of a job are those of the first repetition; the last one is `count - 1` periods later.
        return self.phase.start_us + (self.count - 1) * (self.phase.period_us or 0) + job.end_us


_Parts: TypeAlias = Mapping[str, Sequence[tuple[CheckedPhase, _Job]]]
"""The phases of each job, by its name, and what it does there, in the order of the plan."""


def of_phases(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Report every broken rule of a plan, however damaged it is."""
    asked = {job.name: job for job in instance.jobs}
    phases = _paired(instance, asked, plan)
    parts: defaultdict[str, list[tuple[CheckedPhase, _Job]]] = defaultdict(list)
    for phase in phases:
        for job in phase.jobs:
            parts[job.job.name].append((phase, job))
    # A job that may not move keeps its memory in the phases between those that it is in.
    staying = {name: found for name, found in parts.items() if asked[name].restart_us is None}
    activations = {
        name: activation_bytes(own)
        for name, found in parts.items()
        if (own := [job for _, job in found if isinstance(job, CheckedJob)])
    }
    if plan.is_phased:
        yield from document.of_the_instance(instance, plan)
        yield from _horizon(instance, plan)
    for phase in phases:
        if plan.is_phased:
            yield from _contents(asked, phase)
        yield from of_jobs(phase.jobs, instance.cluster, phase.period_us)
        paused = list(_paused(phase, staying))
        yield from memory([*paused, *phase.jobs], instance.cluster, phase.period_us, activations)
        yield from licences([*paused, *phase.jobs], instance.cluster, phase.period_us)
    yield from _balanced(asked, parts)
    yield from _guaranteed(asked, parts)
    yield from document.objective(instance, plan, _ends_us(asked, parts))
    yield from document.bound(plan)
    if plan.is_phased:
        yield from _seams(phases)
        yield from _shared(instance, phases)
        yield from _whole(asked, parts)
        yield from _moves(asked, parts)
    else:
        yield from document.belonging(instance, plan)
        yield from document.period(instance, plan)


def _paired(instance: Instance, asked: Mapping[str, Job | TaskGraphJob], plan: Plan) -> list[CheckedPhase]:
    """Pair the jobs of each phase with what was asked of them in it."""
    pairing, found = Pairing(instance), []
    for g, p, phase in plan.all_phases():
        path = f"$.groups[{g}].phases[{p}]" if plan.is_phased else "$"
        usable = phase.period_us is not None and phase.period_us >= 1
        repeats = phase.is_counted or instance.horizon == "cyclic"
        jobs = _in_repetition(asked, phase) if phase.is_counted else instance.jobs
        paired = tuple(pairing.of(jobs, phase.jobs, path))
        found.append(CheckedPhase(path, g, p, phase, phase.period_us if usable and repeats else None, paired))
    return found


def _in_repetition(asked: Mapping[str, Job | TaskGraphJob], phase: Phase) -> list[Job | TaskGraphJob]:
    """Return the jobs of a phase as those of a cyclic plan, with the iterations listed."""
    return [
        in_a_period(asked[claimed.name], len(claimed.iterations))
        for claimed in phase.jobs
        if claimed.name in asked and claimed.iterations
    ]


def _horizon(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check that the horizon is finite and that groups have phases (specification: phased-plans)."""
    if instance.horizon != "finite":
        yield Violation("document", "$", "a phased plan is one of the finite horizon, but the instance is cyclic")
    if not plan.groups:
        yield Violation("document", "$.groups", "a phased plan has at least one group")
    for g, group in enumerate(plan.groups):
        if not group.phases:
            yield Violation("document", f"$.groups[{g}].phases", "a group has at least one phase")


def _contents(asked: Mapping[str, Job | TaskGraphJob], checked: CheckedPhase) -> Iterator[Violation]:
    """Check that a phase has a period, repetitions, and jobs in the instance's order, each with iterations."""
    phase, path = checked.phase, checked.path
    if phase.cycle_us < 1:
        yield Violation("period", f"{path}.period_us", f"the period is {phase.period_us}, but must be at least 1")
    if phase.count < 1:
        yield Violation("phases", f"{path}.repeats", f"{phase.repeats} repetitions, but there must be at least 1")
    if not phase.jobs:
        yield Violation("document", f"{path}.jobs", "a phase has at least one job")
    # Places must rise strictly, so that a job which is listed twice is out of order, too.
    position, last = {name: k for k, name in enumerate(asked)}, -1
    for index, claimed in enumerate(phase.jobs):
        where, place = f"{path}.jobs[{index}]", position.get(claimed.name)
        if place is None:
            yield Violation("document", f"{where}.name", f"the instance has no job {claimed.name!r}")
            continue
        if place <= last:
            yield Violation("document", f"{where}.name", f"job {claimed.name!r} is not in the instance's order")
        last = max(place, last)
        if not claimed.iterations:
            yield Violation("document", f"{where}.iterations", "a job has at least one iteration in a phase")
        yield from document.of_the_other_kind(asked[claimed.name], claimed, where)


def _seams(phases: Sequence[CheckedPhase]) -> Iterator[Violation]:
    """Check that each phase of a group starts when the one before has ended (specification: phases)."""
    for checked in phases:
        if checked.number == 0 and checked.phase.start_us < 0:
            yield Violation("phases", f"{checked.path}.start_us", f"the phase starts at {checked.phase.start_us}")
    for before, after in pairwise(phases):
        start, end = after.phase.start_us, before.phase.end_us
        if before.group == after.group and start < end:
            message = f"the phase starts at {start}, before the one before it ends at {end}"
            yield Violation("phases", f"{after.path}.start_us", message)


def _shared(instance: Instance, phases: Sequence[CheckedPhase]) -> Iterator[Violation]:
    """Report what an earlier group has, too: a job, GPU, link, power cap or scarce licence (specification: groups)."""
    owner: dict[tuple[str, str], int] = {}
    named = Counter(name for job in instance.jobs for name in job.licences or ())
    scarce = {name for name, count in (instance.cluster.licences or {}).items() if named[name] > count}
    for checked in phases:
        for job in checked.jobs:
            gpus = [gpu for gpu, server in zip(job.plan.gpus, job.servers, strict=True) if server is not None]
            links = [instance.cluster.links[link].name for link in sorted(_links(job))]
            used = [("job", job.job.name), *(("GPU", gpu) for gpu in gpus), *(("link", link) for link in links)]
            used += [("power cap", name) for name in caps_of(job, instance.cluster)]
            used += [("licence", name) for name in job.job.licences or () if name in scarce]
            for kind, name in used:
                # The first group that has it is its owner. Phases come in the order of their groups.
                group = owner.setdefault((kind, name), checked.group)
                if group < checked.group:
                    yield Violation("groups", job.path, f"{kind} {name} is in group {group}, too")


def _links(job: _Job) -> set[int]:
    """Return the numbers of the links that a job's transfers use."""
    if isinstance(job, CheckedTaskGraphJob):
        return {link for transfer in job.transfers for link in transfer.links}
    return set(job.exchange.links) if job.exchange is not None else set()


def _whole(asked: Mapping[str, Job | TaskGraphJob], parts: _Parts) -> Iterator[Violation]:
    """Check that every job has all of its iterations, on the same GPUs unless it may move."""
    for name, job in asked.items():
        if name not in parts:
            yield Violation("groups", "$.groups", f"no group has job {name!r}")
            continue
        done = _iterations(parts[name])
        if done != job.iterations:
            message = f"{done} iterations over all phases, but the job has {job.iterations}"
            yield Violation("phases", parts[name][-1][1].path, message)
        gpus = parts[name][0][1].plan.gpus
        for _, part in parts[name]:
            if part.plan.gpus != gpus and job.restart_us is None:
                message = f"on {', '.join(part.plan.gpus)}, but on {', '.join(gpus)} in its first phase"
                yield Violation("placement", f"{part.path}.gpus", message)


def _moves(asked: Mapping[str, Job | TaskGraphJob], parts: _Parts) -> Iterator[Violation]:
    """Check that a job that pauses or moves goes on no earlier than its restart allows (specification: moves)."""
    for name, found in parts.items():
        restart_us = asked[name].restart_us
        for (before, part), (after, resumed) in pairwise(found if restart_us is not None else ()):
            goes_on = after.number == before.number + 1 and resumed.plan.gpus == part.plan.gpus
            if goes_on or after.group != before.group:
                continue
            start, end = after.phase.start_us + _first_start_us(resumed), before.end_us(part)
            if start < end + (restart_us or 0):
                message = f"goes on at {start}, within {restart_us} of its end at {end} in an earlier phase"
                yield Violation("moves", resumed.path, message)


def _balanced(asked: Mapping[str, Job | TaskGraphJob], parts: _Parts) -> Iterator[Violation]:
    """Check the balance of each job that has all of its iterations."""
    for name, found in parts.items():
        own = [(checked.count, part) for checked, part in found if isinstance(part, CheckedJob)]
        if own and _iterations(found) == asked[name].iterations:
            yield from balance(own)


def _iterations(parts: Sequence[tuple[CheckedPhase, _Job]]) -> int:
    return sum(checked.count * len(part.plan.iterations) for checked, part in parts)


def _guaranteed(asked: Mapping[str, Job | TaskGraphJob], parts: _Parts) -> Iterator[Violation]:
    """Check that no operation starts before the release, and what jobs guarantee.

    The release of a job that has no part that is counted is looked at with its other operations.
    """
    for name, found in parts.items():
        job = asked[name]
        for checked, part in found:
            # In plans that list all iterations or are cyclic, `of_jobs` has checked the release of each operation.
            start = checked.phase.start_us + _first_start_us(part) if checked.phase.is_counted else job.release_us
            if start < job.release_us:
                message = f"starts at {start}, before the release of the job at {job.release_us}"
                yield Violation("release", part.path, message)
        # A job ends in the last of its phases.
        checked, part = found[-1]
        period_us = None if checked.phase.is_counted else checked.period_us
        yield from guarantees(job, part.path, checked.end_us(part), period_us)


def _first_start_us(job: _Job) -> int:
    """Return the earliest start of its operations in a repetition, in microseconds."""
    return min((operation.start_us for operation in job.plan.operations), default=0)


def _ends_us(asked: Mapping[str, Job | TaskGraphJob], parts: _Parts) -> dict[str, int]:
    """Return when each job ends that has all of its operations."""
    return {
        name: found[-1][0].end_us(found[-1][1])
        for name, found in parts.items()
        if _iterations(found) == asked[name].iterations and all(part.is_whole for _, part in found)
    }


def _paused(checked: CheckedPhase, parts: _Parts) -> Iterator[_Job]:
    """Yield jobs of the group that were in an earlier phase and are in a later one, as what they keep in memory."""
    present = {job.job.name for job in checked.jobs}
    for name, found in parts.items():
        if name in present:
            continue
        numbers = [other.number for other, _ in found if other.group == checked.group]
        # A job has nothing in memory before its first phase, nor behind its last one.
        if numbers and min(numbers) < checked.number < max(numbers):
            yield _resting(next(job for other, job in reversed(found) if other.group == checked.group))


def _resting(job: _Job) -> _Job:
    """Return a job that does nothing, so that it keeps what it has in memory all the time, and holds nothing."""
    if isinstance(job, CheckedTaskGraphJob):
        return replace(job, plan=TaskGraphJobPlan(job.plan.name, job.plan.gpus, ()))
    return replace(job, plan=JobPlan(job.plan.name, job.plan.gpus, ()))

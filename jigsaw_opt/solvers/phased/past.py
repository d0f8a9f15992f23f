"""Phases of an old plan in a changed instance: what of them has begun at a moment, and how long they take now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import Problem
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import assemble, decisions_of
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase, PhaseGroup, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.phased.shelves import cyclic_part
from jigsaw_opt.solvers.resolve.fix import misplaced, same_shape
from jigsaw_opt.solvers.resolve.values import ends_us


@dataclass(frozen=True, slots=True)
class BegunPhases:
    """Phases that have begun before a moment.

    `groups`: for each group of the old plan the phases that have begun, with the repetitions that have; those end.
    """

    moment: int
    groups: tuple[tuple[Phase, ...], ...]

    @property
    def done(self) -> Counter[str]:
        """Return, by name of a job that has begun, the iterations that have or will have ended."""
        done: Counter[str] = Counter()
        for phase in (phase for group in self.groups for phase in group):
            for job in phase.jobs:
                done[job.name] += phase.count * len(job.iterations)
        return done

    @property
    def placements(self) -> dict[str, tuple[str, ...]]:
        """Return the GPUs of every job that has begun: it keeps them (specification: phased-plans)."""
        return {job.name: job.gpus for group in self.groups for phase in group for job in phase.jobs}

    def resumed_us(self, job: Job) -> int:
        """Return when a job that may move and has begun may go on, wherever it is.

        The result is 0 for other jobs (specification: moves).
        """
        if job.restart_us is None:
            return 0
        ends = ends_us([phase for group in self.groups for phase in group])
        return ends[job.name] + job.restart_us if job.name in ends else 0

    def left(self, job: Job) -> Job:
        """Return a job with the iterations, one at least, and the balance that what has begun leaves for the rest."""
        rest = altered(job, iterations=job.iterations - self.done[job.name])
        if not isinstance(rest.depth, FreeDepth) or rest.depth.balance is None or job.name not in self.done:
            return rest
        totals = [0] * job.workers
        for phase in (phase for group in self.groups for phase in group):
            for part in (part for part in phase.jobs if part.name == job.name):
                for levels in part.levels:
                    totals = [total + phase.count * level for total, level in zip(totals, levels, strict=True)]
        balance = max(0, rest.depth.balance - (max(totals) - min(totals)))
        return altered(rest, depth=replace(rest.depth, balance=balance))

    def free_us(self, group: int) -> int:
        """Return when all that has begun in a group has ended, and no earlier than the moment."""
        return max(self.moment, max((phase.end_us for phase in self.groups[group]), default=0))


def past_at(instance: Instance, plan: Plan, moment: int) -> BegunPhases:
    """Return the phases of a plan that have begun before a moment, with the durations of a changed instance.

    Jobs that the changed instance lacks are left out. A phase that cannot hold any more stays as it is, for
    `past_problems` to name.
    """
    groups = []
    for group in plan.groups:
        begun = takewhile(lambda phase: phase.start_us < moment, group.phases)
        kept = (kept_jobs(instance, phase) for phase in begun)
        ended = (_begun_part(as_now(instance, phase) or phase, moment) for phase in kept if phase.jobs)
        groups.append(tuple(ended))
    return BegunPhases(moment, tuple(groups))


def _begun_part(phase: Phase, moment: int) -> Phase:
    # A repetition that has begun is rounded up to a whole one: it is carried out to its end.
    begun = ceil_div(moment - phase.start_us, phase.cycle_us)
    return replace(phase, repeats=min(phase.count, begun))


def kept_jobs(instance: Instance, phase: Phase) -> Phase:
    """Return a phase with its jobs that an instance has and that do anything in it, in the instance's order."""
    there = {job.name: job for job in phase.jobs if job.iterations}
    return replace(phase, jobs=tuple(there[job.name] for job in instance.jobs if job.name in there))


def past_problems(instance: Instance, past: BegunPhases, fixed: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """Yield why the phases that have begun cannot stay in a changed instance.

    `fixed`: by name of a job, the GPUs that it is fixed to.
    """
    done, placements = past.done, past.placements
    begun = tuple(job for job in instance.data_parallel if job.name in done)
    for job in begun:
        place = f'$.before_us: job "{job.name}"'
        if done[job.name] > job.iterations:
            yield Problem(
                place, f"{done[job.name]} iterations have begun, but it has {job.iterations}", code="contradiction"
            )
        if tuple(fixed.get(job.name, placements[job.name])) != placements[job.name]:
            yield Problem(place, "has begun, and its fixed placement is another one", code="contradiction")
    if not begun:
        return
    # The checker wants all iterations of a job. With just those that have begun, the past is a complete plan of its
    # own.
    jobs = tuple(altered(job, iterations=done[job.name], deadline_us=None) for job in begun)
    part, groups = altered(instance, jobs=jobs), tuple(PhaseGroup(group) for group in past.groups if group)
    for violation in violations(part, Plan(part.name, instance_sha256(part), "feasible", 0, 0, groups)):
        # The plan to check states 0 for two of them, as nobody asks for them here; what is left may restore balance.
        if violation.rule not in ("objective", "bound", "balance"):
            yield Problem(
                f"$.before_us: {violation.path}",
                f"has begun, but does not hold: {violation.message}",
                code="broken-rule",
            )


def as_now(instance: Instance, phase: Phase) -> Phase | None:
    """Return a phase with the durations of a changed instance and its old starts; None where it does not hold."""
    if _holds(instance, phase):
        return phase
    operations = compile_instance(_part(instance, phase))
    placed = phase.data_parallel_jobs
    if len(placed) < len(phase.jobs):
        return None
    for job, old in zip(operations.jobs, placed, strict=True):
        if not same_shape(job, old) or any(misplaced(operations, job, old.gpus)):
            return None
    now = replace(phase, jobs=assemble(operations, decisions_of(operations, placed)))
    return now if _holds(instance, now) else None


def _holds(instance: Instance, phase: Phase) -> bool:
    """Return whether the checker accepts a phase as a correct cyclic plan of its jobs."""
    part, period_us = _part(instance, phase), phase.cycle_us
    alone = Plan.of_jobs(part.name, instance_sha256(part), "feasible", period_us, 0, period_us, phase.jobs)
    # Balance is a matter of all phases together.
    return all(violation.rule == "balance" for violation in violations(part, alone))


def _part(instance: Instance, phase: Phase) -> Instance:
    return cyclic_part(instance, {job.name: len(job.iterations) for job in phase.jobs})

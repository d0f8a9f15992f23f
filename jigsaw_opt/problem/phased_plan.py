"""Plans of long jobs: cyclic plans, repeated, one after another (specification: phased-plans)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan, PlanStatus, ShapedJobPlan

__all__ = ["CyclicPhase", "Phase", "PhaseGroup", "PhasedPlan"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A cyclic plan of some jobs, repeated.

    Parameters
    ----------
    start_us
        When its first repetition begins, in microseconds; what its jobs state counts from there.
    period_us
        Microseconds from one repetition to the next.
    repeats
        How often it takes place.
    jobs
        What each job does in one repetition, in the instance's order.
    """

    start_us: int
    period_us: int
    repeats: int
    jobs: tuple[JobPlan | ShapedJobPlan, ...]

    @property
    def last_start_us(self) -> int:
        """When its last repetition begins, in microseconds."""
        return self.start_us + (self.repeats - 1) * self.period_us

    @property
    def end_us(self) -> int:
        """When the last operation of its last repetition ends, in microseconds."""
        ends = (
            operation.end_us
            for job in self.jobs
            for iteration in job.iterations
            for operation in (*iteration.blocks, *iteration.transfers)
        )
        return self.last_start_us + max(ends, default=0)


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Phases in order of time, whose jobs share no GPU and no link with those of other groups."""

    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class PhasedPlan:
    """A plan for an instance of the finite horizon. Fields as in the document ``jigsaw-phased-plan/1``."""

    instance: str
    instance_sha256: str
    status: PlanStatus
    objective: int
    bound: int
    groups: tuple[PhaseGroup, ...]
    solver: Mapping[str, Any] = field(default_factory=dict)

    def as_cyclic(self, instance: Instance, phase: Phase) -> CyclicPhase:
        """A phase as the cyclic plan that it repeats, of an instance whose jobs do what they do in one repetition."""
        numbers = {job.name: number for number, job in enumerate(instance.jobs)}
        own = tuple(numbers[job.name] for job in phase.jobs)
        jobs = tuple(
            replace(instance.jobs[number], iterations=len(job.iterations), release_us=0, deadline_us=None)
            for number, job in zip(own, phase.jobs, strict=True)
        )
        part = replace(instance, jobs=jobs, horizon="cyclic", objective="period")
        period = phase.period_us
        plan = Plan(self.instance, "", "feasible", period, 0, period, phase.jobs, self.solver)
        return CyclicPhase(part, plan, own)

    def all_phases(self) -> Iterator[tuple[int, int, Phase]]:
        """Every phase with the number of its group and its own number in it."""
        for g, group in enumerate(self.groups):
            for p, phase in enumerate(group.phases):
                yield g, p, phase


@dataclass(frozen=True, slots=True)
class CyclicPhase:
    """A phase as a cyclic plan.

    Parameters
    ----------
    instance, plan
        Its jobs alone, each with the iterations of one repetition, and what they do in it.
    numbers
        Numbers of its jobs in the whole instance.
    """

    instance: Instance
    plan: Plan
    numbers: tuple[int, ...]

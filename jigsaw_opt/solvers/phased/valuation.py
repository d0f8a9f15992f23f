"""How good phases are: when jobs end, the objective, and how late they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.problem.shape import ShapedJob

__all__ = ["ends_us", "objective_at", "value_of"]


def ends_us(phases: Sequence[Phase]) -> dict[str, int]:
    """When each job ends."""
    ends = {}
    for phase in phases:
        for job in phase.jobs:
            ends[job.name] = replace(phase, jobs=(job,)).end_us
    return ends


def objective_at(instance: Instance, ends: Mapping[str, int]) -> int:
    """Objective of the jobs that end then, in microseconds (specification: objective)."""
    if instance.objective == "makespan":
        return max(ends.values())
    return sum(job.weight * ends[job.name] for job in instance.jobs if job.name in ends)


def value_of(instance: Instance, jobs: Mapping[str, Job | ShapedJob], phases: Sequence[Phase]) -> tuple[int, int]:
    """How late jobs are in all, then the group's part of the objective."""
    ends = ends_us(phases)
    late = sum(max(0, ends[name] - job.deadline_us) for name, job in jobs.items() if job.deadline_us is not None)
    return late, objective_at(instance, ends)

"""How good phases are: when jobs end, the objective, and lateness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.problem.task_graph import TaskGraphJob


def ends_us(phases: Sequence[Phase]) -> dict[str, int]:
    """Return when each job ends, in microseconds."""
    return {job.name: phase.end_of(job) for phase in phases for job in phase.jobs}


def objective_at(instance: Instance, ends: Mapping[str, int]) -> int:
    """Return the objective of jobs with given ends (specification: objective).

    `ends`: by name of a job, its end in microseconds; other jobs do not count.
    """
    if instance.objective == "makespan":
        return max(ends.values())
    return sum(job.weight * ends[job.name] for job in instance.jobs if job.name in ends)


def value_of(instance: Instance, jobs: Mapping[str, Job | TaskGraphJob], phases: Sequence[Phase]) -> tuple[int, int]:
    """Return how late jobs are in all, then the group's part of the objective.

    Lateness in microseconds, and the objective.
    """
    ends = ends_us(phases)
    late = sum(max(0, ends[name] - job.deadline_us) for name, job in jobs.items() if job.deadline_us is not None)
    return late, objective_at(instance, ends)

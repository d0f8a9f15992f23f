"""What comes of making a phased plan, and how good its phases are: when jobs end, the objective, and lateness."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase, Plan
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict, Result, Status, StoppedBy


def phased_result(
    options: Options, started: float, bound: Bound, plan: Plan | None = None, conflicts: tuple[Conflict, ...] = ()
) -> Result:
    """Return the result of making a phased plan.

    `options, started`: options of the solve, and when it began on the monotonic clock, in seconds. `plan, conflicts`:
    the plan, checked, or why there is none, where that is proven.
    """
    seconds = time.monotonic() - started
    status = Status.INFEASIBLE if conflicts else Status.UNKNOWN if plan is None else Status(plan.status)
    if status in (Status.OPTIMAL, Status.INFEASIBLE):
        stopped_by = StoppedBy.PROOF
    elif options.cancel.is_set():
        stopped_by = StoppedBy.INTERRUPT
    elif options.time_limit is not None and seconds >= options.time_limit:
        stopped_by = StoppedBy.TIME
    else:
        stopped_by = StoppedBy.COMPLETED
    return Result(
        status=status,
        stopped_by=stopped_by,
        objective=None if plan is None else plan.objective,
        bound=bound.value,
        proof=bound.proof,
        plan=plan,
        conflicts=conflicts,
        solver="phased",
        seconds=seconds,
        seed=options.seed,
        threads=options.threads,
    )


def ends_us(phases: Sequence[Phase]) -> dict[str, int]:
    """Return when each job ends, in microseconds."""
    ends = {}
    for phase in phases:
        for job in phase.jobs:
            ends[job.name] = replace(phase, jobs=(job,)).end_us
    return ends


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

"""Which jobs of an old plan can stay as they lie in a changed instance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.timetable import assemble, decisions_of, job_end, objective_of
from jigsaw_opt.solvers.resolve.fix import Fix, misplaced, same_shape
from jigsaw_opt.solvers.resolve.shifting import shifted

__all__ = ["carried"]


def carried(operations: Operations, plan: Plan, fix: Fix) -> dict[int, JobPlan]:
    """Return, by number of a job in the changed instance, its old plan with the new durations.

    Jobs are matched by name. On a finite horizon they are timed anew in their old order. Those whose operations break a
    rule now, alone or with others, are left out: the checker says which.
    """
    if (plan.period_us is None) != (operations.horizon == "finite"):
        return {}
    old = {job.name: job for job in plan.data_parallel}
    chosen = [
        index
        for index, job in enumerate(operations.jobs)
        if (found := old.get(job.name)) is not None
        and same_shape(job, found)
        and not any(misplaced(operations, job, found.gpus))
        and tuple(fix.placements.get(job.name, found.gpus)) == found.gpus
    ]
    while chosen:
        jobs = _now(operations, chosen, [old[operations.jobs[index].name] for index in chosen], fix.moment)
        broken = _broken(operations, chosen, jobs, plan.period_us)
        if not broken:
            return dict(zip(chosen, jobs, strict=True))
        chosen = [index for at, index in enumerate(chosen) if at not in broken]
    return {}


def _now(operations: Operations, chosen: Sequence[int], old: Sequence[JobPlan], moment: int) -> tuple[JobPlan, ...]:
    """Return old plans of some jobs with the new durations."""
    decisions = decisions_of(operations, old)
    part = replace(operations, jobs=tuple(operations.jobs[index] for index in chosen))
    if operations.horizon == "finite":
        decisions = shifted(part, decisions, moment, _following(old) if operations.has_scarce_memory else {})
    return assemble(part, decisions)


def _following(jobs: Sequence[JobPlan]) -> dict[int, list[int]]:
    """Return, by number of a job, those on its GPUs that end before it begins, for memory may not hold both at once."""
    begins = [min(block.start_us for block in job.iterations[0].blocks) for job in jobs]
    ends = [job_end(job) for job in jobs]
    on = [set(job.gpus) for job in jobs]
    numbers = range(len(jobs))
    return {k: [j for j in numbers if ends[j] <= begins[k] and not on[j].isdisjoint(on[k])] for k in numbers}


def _broken(operations: Operations, chosen: Sequence[int], jobs: tuple[JobPlan, ...], period: int | None) -> set[int]:
    """Return the positions, among the chosen jobs, of those that the checker names."""
    instance = altered(operations.instance, jobs=tuple(operations.instance.jobs[index] for index in chosen))
    part = replace(operations, jobs=tuple(operations.jobs[index] for index in chosen))
    value = objective_of(part, jobs, period)
    alone = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, period, jobs)
    named = [re.match(r"\$\.jobs\[(\d+)\]", violation.path) for violation in violations(instance, alone)]
    return {int(found[1]) for found in named if found is not None}

"""Whether the document belongs to the instance and has its shape (SPEC 4.7, and the period of section 5)."""

from __future__ import annotations

from jigsaw_opt.checking.violation import Findings
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import JobPlan, Plan

__all__ = ["check_belonging", "check_period", "check_shape"]


def check_belonging(instance: Instance, plan: Plan, found: Findings) -> None:
    """Name, hash, and the jobs in the instance's order."""
    if plan.instance != instance.name:
        found.add("4.7", "$.instance", f"the plan is for {plan.instance!r}, not for {instance.name!r}")
    expected = instance_sha256(instance)
    if plan.instance_sha256 != expected:
        found.add("4.7", "$.instance_sha256", f"the hash of the instance is {expected}")
    names, wanted = [job.name for job in plan.jobs], [job.name for job in instance.jobs]
    if names != wanted:
        what = "stand in another order" if sorted(names) == sorted(wanted) else "are not those of the instance"
        found.add("4.7", "$.jobs", f"the jobs {what}")


def check_period(instance: Instance, plan: Plan, found: Findings) -> None:
    """A finite plan has no period; a cyclic one has a period of at least 1."""
    if instance.horizon == "finite":
        if plan.period_us is not None:
            found.add("4.7", "$.period_us", "a finite plan has no period")
    elif plan.period_us is None:
        found.add("5", "$.period_us", "a cyclic plan needs its period")
    elif plan.period_us < 1:
        found.add("5", "$.period_us", f"the period is at least 1, not {plan.period_us}")


def check_shape(job: Job, depth: int, plan: JobPlan, path: str, found: Findings) -> bool:
    """As many GPUs, iterations, blocks and buckets as the job has; says whether all are there."""
    before = len(found)
    if len(plan.gpus) != job.workers:
        found.add("4.7", f"{path}.gpus", f"{len(plan.gpus)} GPUs for {job.workers} workers")
    if len(plan.iterations) != job.iterations:
        found.add("4.7", f"{path}.iterations", f"{len(plan.iterations)} iterations instead of {job.iterations}")
    buckets = tuple(range(1, depth + 1)) if job.workers >= 2 else ()
    for number, iteration in enumerate(plan.iterations):
        where = f"{path}.iterations[{number}]"
        if len(iteration.blocks) != job.workers:
            found.add("4.7", f"{where}.blocks", f"{len(iteration.blocks)} blocks for {job.workers} workers")
        if tuple(transfer.bucket for transfer in iteration.transfers) != buckets:
            wanted = f"buckets 1 to {depth} in order" if buckets else "no transfers, for it has one worker"
            found.add("4.7", f"{where}.transfers", f"the job needs {wanted}")
    return len(found) == before

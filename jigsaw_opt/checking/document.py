"""Rules for what a document says of its instance and itself (specification: document, objective, bound, period)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jigsaw_opt.checking.jobs import CheckedJob, of_kind
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob


def of_the_instance(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Compare name and hash with those of the instance (specification: document)."""
    if plan.instance != instance.name:
        yield Violation("document", "$.instance", f"plan of {plan.instance!r}, but the instance is {instance.name!r}")
    expected = instance_sha256(instance)
    if plan.instance_sha256 != expected:
        yield Violation("document", "$.instance_sha256", f"{plan.instance_sha256}, but the instance has {expected}")


def belonging(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Compare name, hash, and the jobs in the instance's order (specification: document)."""
    yield from of_the_instance(instance, plan)
    names, stated = [job.name for job in instance.jobs], [job.name for job in plan.jobs]
    if len(stated) != len(names):
        yield Violation("document", "$.jobs", f"{len(stated)} jobs, but the instance has {len(names)}")
    for index, (name, found) in enumerate(zip(names, stated, strict=False)):
        if found != name:
            yield Violation("document", f"$.jobs[{index}].name", f"job {found!r} where the instance has {name!r}")
    jobs = {job.name: job for job in instance.jobs}
    for index, claimed in enumerate(plan.jobs):
        yield from of_the_other_kind(jobs.get(claimed.name), claimed, f"$.jobs[{index}]")


def of_the_other_kind(
    job: Job | TaskGraphJob | None, claimed: JobPlan | TaskGraphJobPlan, path: str
) -> Iterator[Violation]:
    """Report operations of a data-parallel job where the job is a task-graph job, or the other way round.

    `job`: the job of the instance; None where it has none of that name.
    """
    if job is not None and of_kind(job, claimed) is None:
        has = "levels, but the job has a task graph"
        if not isinstance(claimed, JobPlan):
            has = "no levels, but the job is data-parallel"
        yield Violation("document", f"{path}.iterations", f"the operations have {has}")


def contents(job: CheckedJob) -> Iterator[Violation]:
    """Check that there are as many GPUs, iterations and blocks as were asked for, and buckets 1 to D in order."""
    workers, iterations = job.job.workers, job.job.iterations
    if len(job.plan.gpus) != workers:
        yield Violation("document", f"{job.path}.gpus", f"{len(job.plan.gpus)} GPUs for {workers} workers")
    if len(job.plan.iterations) != iterations:
        found = len(job.plan.iterations)
        yield Violation("document", f"{job.path}.iterations", f"{found} iterations, but the job has {iterations}")
    for path, iteration in job.iterations():
        if not job.has_all_blocks(iteration):
            yield Violation("document", f"{path}.blocks", f"{len(iteration.blocks)} blocks for {workers} workers")
        if not job.has_all_transfers(iteration):
            buckets = [transfer.bucket for transfer in iteration.transfers]
            expected = f"1 to {job.terms.depth} in order" if workers >= 2 else "none, for one worker exchanges nothing"
            yield Violation("document", f"{path}.transfers", f"buckets {buckets}, but must be {expected}")


def period(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check that a cyclic plan, and no other, has a period, which is also its objective.

    Notes
    -----
    Specification: period, objective.
    """
    if instance.horizon == "finite":
        if plan.period_us is not None:
            yield Violation("period", "$.period_us", f"{plan.period_us}, but a finite plan has no period")
    elif plan.period_us is None:
        yield Violation("period", "$.period_us", "a cyclic plan needs its period")
    elif plan.period_us < 1:
        yield Violation("period", "$.period_us", f"the period is {plan.period_us}, but must be at least 1")
    elif plan.objective != plan.period_us:
        yield Violation("objective", "$.objective", f"{plan.objective}, but the period is {plan.period_us}")


def objective(instance: Instance, plan: Plan, ends_us: Mapping[str, int]) -> Iterator[Violation]:
    """Check the objective on the finite horizon against the ends of whole jobs (specification: objective).

    `ends_us`: end of each job that has all of its operations, by name, in microseconds.
    """
    # Without the end of every job the objective is not known, and what is missing is reported elsewhere.
    if instance.horizon == "cyclic" or len(ends_us) < len(instance.jobs):
        return
    weighted = sum(job.weight * ends_us[job.name] for job in instance.jobs)
    value = max(ends_us.values()) if instance.objective == "makespan" else weighted
    if plan.objective != value:
        yield Violation("objective", "$.objective", f"{plan.objective}, but the {instance.objective} is {value}")


def bound(plan: Plan) -> Iterator[Violation]:
    """Check that the bound does not exceed the objective, and equals it in an optimal plan (specification: bound)."""
    if plan.bound > plan.objective:
        yield Violation("bound", "$.bound", f"the bound {plan.bound} exceeds the objective {plan.objective}")
    elif plan.status == "optimal" and plan.bound != plan.objective:
        message = f"called optimal, but the bound {plan.bound} is below the objective {plan.objective}"
        yield Violation("bound", "$.status", message)

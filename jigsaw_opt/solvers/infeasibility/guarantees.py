"""Deadlines and cycle-time limits that no plan keeps: of a job alone, by a bound, or of all jobs together."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.critical import least_iteration_us, usable_gpus
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds.activities.slot_loads import earliest_end_us
from jigsaw_opt.solvers.result import Conflict

__all__ = ["broken_alone", "broken_together", "exceeded_guarantees"]


def exceeded_guarantees(operations: Operations, bound: int, jobs: Collection[str] = ()) -> Conflict | None:
    """Return the guarantees that no plan keeps, for it has an objective of at least `bound`.

    Return None if the bound leaves that open.

    Parameters
    ----------
    operations
        The compiled instance.
    bound
        A lower bound of the objective.
    jobs
        Names of the jobs that the bound rests on, as far as its proof says so.
    """
    limit = operations.objective_limit
    if limit is None or bound <= limit:
        return None
    if operations.horizon == "cyclic":
        return _too_fast(operations, bound, "no period is shorter than", jobs)
    names = tuple(job.name for job in operations.instance.guaranteed_jobs)
    message = f"the {operations.objective} of no plan is below {bound:,}, and the deadlines of all jobs allow {limit:,}"
    wanted = f"the latest deadline has to be at least {bound - limit:,} us later"
    return Conflict("deadline", names, f"{message}; {wanted}" if operations.objective == "makespan" else message)


def broken_alone(operations: Operations) -> Iterator[Conflict]:
    """Yield the guarantees that a job cannot keep even alone on the cluster."""
    limit = operations.objective_limit
    for number, job in enumerate(checking_deadline(operations.jobs)):
        gpus = usable_gpus(operations, job)
        span = job.iterations * least_iteration_us(operations, job, gpus) if gpus else 0
        yield from _late(job.name, job.release_us + span, operations.deadlines[number])
        if operations.horizon == "cyclic" and limit is not None and span > limit:
            yield _too_fast(operations, span, f"the iterations of job {job.name} take at least", (job.name,))
    for graph in checking_deadline(operations.task_graphs if operations.horizon == "finite" else ()):
        yield from _late(graph.job.name, earliest_end_us(graph, operations.cluster), graph.job.deadline_us)


def _late(name: str, end_us: int, deadline_us: int | None) -> Iterator[Conflict]:
    if deadline_us is not None and end_us > deadline_us:
        message = f"job {name} ends no earlier than {end_us:,} us even alone, and must end by {deadline_us:,} us"
        wanted = f"a deadline at least {end_us - deadline_us:,} us later is wanted, or less work or an earlier release"
        yield Conflict("deadline", (name,), f"{message}; {wanted}")


def _too_fast(operations: Operations, least_us: int, why: str, others: Collection[str]) -> Conflict:
    """Return the conflict that the tightest cycle-time limit asks for a period below the least one."""
    job = min(operations.instance.guaranteed_jobs, key=lambda job: (job.pace_us or 0) * job.iterations)
    message = f"{why} {least_us:,} us, and job {job.name} guarantees {_guarantee_of(job)}"
    wanted = f"an iteration every {ceil_div(least_us, job.iterations):,} us is the most that may be guaranteed"
    return Conflict("pace", tuple(dict.fromkeys((job.name, *others))), f"{message}; {wanted}")


def broken_together(operations: Operations) -> Conflict:
    """Return the conflict that no plan of all jobs keeps their guarantees, though each job alone may."""
    told = ", ".join(f"{job.name} ({_guarantee_of(job)})" for job in operations.instance.guaranteed_jobs)
    names = tuple(job.name for job in operations.instance.jobs)
    kind = "pace" if operations.horizon == "cyclic" else "deadline"
    message = f"no plan of all jobs keeps what these guarantee: {told}"
    return Conflict(kind, names, f"{message}; a larger {kind}_us of one of them, or fewer jobs, may help")


def _guarantee_of(job: Job | TaskGraphJob) -> str:
    if job.deadline_us is not None:
        return f"to end by {job.deadline_us:,} us"
    return f"{job.iterations:,} iterations, one every {job.pace_us:,} us"

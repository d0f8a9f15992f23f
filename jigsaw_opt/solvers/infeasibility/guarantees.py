"""Deadlines and cycle-time limits that no plan keeps: of a job alone, or by a bound."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.critical import least_iteration_us, usable_gpus
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData, earliest_end
from jigsaw_opt.solvers.bounds.proof import Proof
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import counted, named


def exceeded_guarantees(operations: Operations, bound: int, proof: Proof | None = None) -> Conflict | None:
    """Return the guarantees that no plan keeps, for it has an objective of at least `bound`.

    Return None if the bound leaves that open.

    `proof`: why it holds, and for which jobs; None where a search has proven it.
    """
    limit = operations.objective_limit
    if limit is None or bound <= limit:
        return None
    proof = proof or Proof()
    if operations.horizon == "cyclic":
        return _too_fast(operations, bound, "no period is shorter than", proof.jobs)
    guaranteed = operations.instance.guaranteed_jobs
    why = f", for {proof.sentence}" + (f": {proof.arithmetic}" if proof.arithmetic else "") if proof.sentence else ""
    if operations.objective != "makespan":
        message = f"the {operations.objective} of no plan is below {bound:,}, and the deadlines of all jobs allow"
        return Conflict("deadline", tuple(job.name for job in guaranteed), f"{message} {limit:,}{why}")
    # The jobs of the proof end no earlier than the bound, whatever the others do.
    late = [job for job in guaranteed if job.name in proof.jobs] or [*guaranteed]
    latest = max(late, key=lambda job: job.deadline_us or 0)
    names = tuple(job.name for job in late)
    last = f"the latest deadline of {named(names)} is that of {latest.name}, {latest.deadline_us or 0:,} us"
    wanted = f"it has to be at least {bound - (latest.deadline_us or 0):,} us later"
    return Conflict("deadline", names, f"no plan ends before {bound:,} us, and {last}{why}; {wanted}")


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
        earliest = earliest_end(TaskGraphData(graph, operations.cluster)).value
        yield from _late(graph.job.name, earliest, graph.job.deadline_us)


def _late(name: str, end_us: int, deadline_us: int | None) -> Iterator[Conflict]:
    if deadline_us is not None and end_us > deadline_us:
        message = f"job {name} ends no earlier than {end_us:,} us even alone, and must end by {deadline_us:,} us"
        wanted = f"a deadline at least {end_us - deadline_us:,} us later is wanted, or less work or an earlier release"
        yield Conflict("deadline", (name,), f"{message}; {wanted}")


def _too_fast(operations: Operations, least_us: int, why: str, others: Collection[str]) -> Conflict:
    """Return the conflict that the tightest cycle-time limit asks for a period below the least one."""
    job = min(operations.instance.guaranteed_jobs, key=lambda job: (job.pace_us or 0) * job.iterations)
    message = f"{why} {least_us:,} us, and job {job.name} guarantees {guarantee_of(job)}"
    wanted = f"an iteration every {ceil_div(least_us, job.iterations):,} us is the most that may be guaranteed"
    return Conflict("pace", tuple(dict.fromkeys((job.name, *others))), f"{message}; {wanted}")


def guarantee_of(job: Job | TaskGraphJob) -> str:
    """Return what a job guarantees, as the end of a sentence."""
    if job.deadline_us is not None:
        return f"to end by {job.deadline_us:,} us"
    return f"{counted(job.iterations, 'iteration')}, one every {job.pace_us:,} us"

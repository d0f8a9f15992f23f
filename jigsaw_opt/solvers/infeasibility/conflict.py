"""A minimal conflict of jobs, for an instance that is proven to have no plan."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.placement_feasibility import placement_feasible, what_helps
from jigsaw_opt.solvers.infeasibility.together import IsFeasible, broken_together, restrict, smallest_part
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import counted


def minimal_conflict(operations: Operations, is_feasible: IsFeasible | None = None) -> Conflict:
    """Return a smallest set of jobs, by inclusion, that has no plan, for an instance proven to have none.

    On the finite horizon that is one job, unless jobs guarantee something: jobs may follow one another.

    QuickXplain (Junker, AAAI 2004) over the jobs: about ``k log(n/k)`` checks for ``k`` of ``n`` jobs. Where a check
    stays open the jobs in question are kept, so the set then still has no plan but may not be minimal.

    Parameters
    ----------
    operations
        The compiled instance; it has no plan.
    is_feasible
        Tells whether some of its jobs have a plan; by default `placement_feasible`.
    """
    if operations.instance.guaranteed_jobs and (operations.task_graphs or placement_feasible(operations) is not False):
        found = broken_together(operations)
        if found is not None:
            return found
    try:
        return _smallest(operations, is_feasible or placement_feasible)
    except OutOfTimeError:
        names = tuple(job.name for job in operations.instance.jobs)
        return Conflict(
            "search", names, "these jobs have no plan; the time was over before fewer were known to have none"
        )


def _smallest(operations: Operations, check: IsFeasible) -> Conflict:
    if operations.horizon == "finite" and operations.task_graphs:
        part, proven = restrict(operations, _not_alone(check, operations)), True
    else:
        part, proven = smallest_part(operations, check)
    certain = certain_causes(part)
    if certain:
        return certain[0]
    if part.task_graphs:
        return Conflict("search", tuple(job.name for job in part.instance.jobs), _slots_together(part, proven))
    if len(part.jobs) == 1 and part.jobs[0].route_policy is not None:
        return Conflict("reach", (part.jobs[0].name,), _no_routes(part.jobs[0]))
    return Conflict("search", tuple(job.name for job in part.jobs), _together(part, proven))


def _not_alone(check: IsFeasible, operations: Operations) -> Sequence[int]:
    """Return the job that has no plan even alone, or else those of which that stays open: it is one of them."""
    undecided, jobs = [], range(len(operations.instance.jobs))
    for job in jobs:
        answer = check(restrict(operations, (job,)))
        if answer is False:
            return (job,)
        if answer is None:
            undecided.append(job)
    return undecided or jobs


def _no_routes(job: OperationGraph) -> str:
    """Say why a job has no place of its own though links join enough GPUs."""
    kept = f"routes that keep its route policy {job.route_policy!r} join no servers that have room for all of them"
    return (
        f"job {job.name} has {counted(job.slots, 'worker')}, and {kept}; a wider route policy or fewer workers may help"
    )


def _slots_together(operations: Operations, minimal: bool) -> str:
    """Return what no placement of some jobs has, some of which have task graphs."""
    names = [job.name for job in operations.instance.jobs]
    placed = "slots and workers" if operations.is_mixed else "the slots"
    routed = " and has routes that keep their policies" if operations.instance.policed else ""
    which = fewer = ""
    if len(names) == 1:
        which = ", even alone,"
    elif operations.horizon == "finite":
        which = " of one of these jobs, even alone,"
    elif minimal:
        fewer = ", though one of any fewer of these jobs does"
    return f"{', '.join(names)}: no placement of {placed}{which} leaves room for what they hold{routed}{fewer}"


def _together(operations: Operations, minimal: bool) -> str:
    """Return what a minimal set of jobs asks for, and what there is."""
    asked = ", ".join(
        f"{job.name} ({counted(job.slots, 'worker')} of {job.state_bytes:,} bytes of state and up to "
        f"{job.activation_bytes[-1]:,} of activations)"
        for job in operations.jobs
    )
    have = ", ".join(
        f"{s.name} ({counted(s.gpus, 'GPU')} of {s.gpu_memory:,} bytes)" for s in operations.cluster.servers[:8]
    )
    more = len(operations.cluster.servers) - 8
    rest = f" and {counted(more, 'more server')}" if more > 0 else ""
    policies = " under its route policy" if operations.instance.policed else ""
    capped = " and under the power caps" if operations.cluster.capacities else ""
    found = f"; the cluster has {have}{rest}{what_helps(operations)}"
    if len(operations.jobs) == 1:
        return f"this job has no place, even alone{policies}{capped}: {asked}{found}"
    fewer = ", though any fewer of them do" if minimal else ""
    policies = " under their route policies" if policies else ""
    return f"these jobs have no place together{policies}{capped}{fewer}: {asked}{found}"

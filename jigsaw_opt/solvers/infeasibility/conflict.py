"""A minimal conflict of jobs, for an instance that is proven to have no plan."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.placement_feasibility import placement_feasible, what_helps
from jigsaw_opt.solvers.infeasibility.places import places_of
from jigsaw_opt.solvers.infeasibility.together import IsFeasible, broken_together, restrict, smallest_part
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import counted


def minimal_conflict(operations: Operations, is_feasible: IsFeasible | None = None) -> Conflict:
    """Return a smallest set of jobs, by inclusion, that has no plan, for an instance proven to have none.

    On the finite horizon that is one job, unless jobs guarantee something: jobs may follow one another. QuickXplain
    (Junker, AAAI 2004) needs about ``k log(n/k)`` checks by `is_feasible` for ``k`` of ``n`` jobs. Where a check stays
    open the jobs in question are kept, so the set then still has no plan but may not be minimal.
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
    if len(part.jobs) == 1 and not part.task_graphs and part.jobs[0].route_policy is not None:
        return Conflict("reach", (part.jobs[0].name,), _no_routes(part.jobs[0]))
    return Conflict("search", tuple(job.name for job in part.instance.jobs), _together(part, proven))


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


def _together(operations: Operations, minimal: bool) -> str:
    """Return what a minimal set of jobs asks for, and what there is."""
    asked = ", ".join([*map(_asked, operations.jobs), *map(_asked, operations.task_graphs)])
    servers = operations.cluster.servers
    have = ", ".join(f"{s.name} ({counted(s.gpus, 'GPU')} of {s.gpu_memory:,} bytes)" for s in servers[:8])
    rest = f" and {counted(len(servers) - 8, 'more server')}" if len(servers) > 8 else ""
    policies = " under route policies" if operations.instance.policed else ""
    capped = " and under the power caps" if operations.cluster.capacities else ""
    who, how = "these jobs have", f" together{policies}{capped}" + (", though any fewer of them do" if minimal else "")
    if operations.horizon == "finite" or len(operations.instance.jobs) == 1:
        who = "this job has" if len(operations.instance.jobs) == 1 else "one of these jobs has"
        how = f", even alone{policies}{capped}"
    helps = "" if operations.task_graphs else what_helps(operations)
    return f"{who} no place{how}: {asked}; the cluster has {have}{rest}{helps}"


def _asked(job: OperationGraph | CompiledTaskGraph) -> str:
    asked = places_of(job)
    largest = max(asked.places, key=lambda place: place.bytes)
    more = f" and up to {largest.bytes - largest.state:,} more at times" if largest.bytes > largest.state else ""
    return f"{asked.name} ({counted(asked.number, asked.who)} of {largest.state:,} bytes of state{more})"

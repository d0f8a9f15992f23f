"""A minimal conflict of jobs, for an instance that is proven to have no plan, and whether all jobs find a place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from math import inf

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations.cpsat_placement import build, literal_count
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, most_bytes
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.places import amount, places_of
from jigsaw_opt.solvers.infeasibility.plan_feasibility import PlanCheck, has_solution
from jigsaw_opt.solvers.infeasibility.together import IsFeasible, broken_together, restrict, smallest_part
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import counted

_MOST_LITERALS = 100_000
"""A larger placement model takes the engine longer than an explanation is worth."""
_MOST_WORK = 10.0
"""Deterministic units of work that the engine may spend on one placement."""
_MOST_TRIED = 2_000
"""Changes of the cluster are tried on models up to this size, for each is solved a few times."""
_MOST_SERVERS = 4
"""Servers of which changes are tried."""
_WORK_OF_A_TRY = 0.2
"""Deterministic units of work of each."""


def placement_feasible(operations: Operations, most_work: float = _MOST_WORK) -> bool | None:
    """Return whether all workers find a place, None where that stays open.

    Without guarantees, it is whether there is a plan. It is open without OR-Tools, above a size, and for numbers beyond
    the engine's. `most_work`: deterministic units of work that the engine may spend.
    """
    if operations.task_graphs:  # What slots hold depends on the order of blocks, so that only a whole plan tells.
        return PlanCheck(inf, most_work)(operations)
    if find_spec("ortools") is None or literal_count(operations) > _MOST_LITERALS:
        return None
    if _largest(operations) > EXACT_IN_64_BITS:
        return None
    found = has_solution(build(operations), most_work, "placement")[0]
    # Beside a balance, a limit of progress asks for more than the model.
    relaxed = any(job.rule.balance is not None and job.rule.progress is not None for job in operations.jobs)
    return None if found and relaxed else found


def what_helps(operations: Operations) -> str:
    """Say which GPU more, or how much memory on one server, proves to give the jobs a place; nothing if none does."""
    if literal_count(operations) > _MOST_TRIED:
        return ""
    try:
        told = [*_gpu_that_helps(operations), *_memory_that_helps(operations)]
    except OutOfTimeError:
        return ""
    return f"; {', or '.join(told)}, gives them a place" if told else ""


def _with(operations: Operations, number: int, server: Server) -> Operations:
    servers = operations.cluster.servers
    return replace(
        operations, cluster=altered(operations.cluster, servers=(*servers[:number], server, *servers[number + 1 :]))
    )


def _different(operations: Operations) -> list[tuple[int, Server]]:
    """Return the first servers that differ in GPUs, type or memory."""
    found = {
        (server.gpu_type, server.gpus, server.gpu_memory): (n, server)
        for n, server in reversed([*enumerate(operations.cluster.servers)])
    }
    return sorted(found.values())[:_MOST_SERVERS]


def _gpu_that_helps(operations: Operations) -> Iterator[str]:
    for number, server in _different(operations):
        if placement_feasible(_with(operations, number, altered(server, gpus=server.gpus + 1)), _WORK_OF_A_TRY):
            yield f"one GPU more on server {server.name}"
            return


def _memory_that_helps(operations: Operations) -> Iterator[str]:
    """Yield the least memory that was found to help, to a hundredth of what all jobs take."""
    most = most_bytes(operations.jobs)
    found = []
    for number, server in _different(operations):
        unit = max(1, most // 100)
        steps = range(1, -(-max(0, most - server.gpu_memory) // unit) + 1)

        def fits(step: int, number: int = number, server: Server = server, unit: int = unit) -> bool:
            larger = altered(server, gpu_memory=server.gpu_memory + step * unit)
            return placement_feasible(_with(operations, number, larger), _WORK_OF_A_TRY) is True

        if steps and fits(steps[-1]):
            found.append((steps[bisect_left(steps, True, key=fits)] * unit, server.name))
    if found:
        size, name = min(found)
        yield f"{amount(size)} more on each GPU of server {name}"


def _largest(operations: Operations) -> int:
    """Return what no sum in the placement model exceeds."""
    memory = max(server.gpu_memory for server in operations.cluster.servers) * (len(operations.jobs) + 1)
    return max(memory, *(4 * job.iterations * job.levels * operations.cluster.gpu_count for job in operations.jobs))


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

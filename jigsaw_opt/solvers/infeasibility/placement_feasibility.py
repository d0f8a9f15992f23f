"""Whether all workers find a place, and what would give them one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import inf

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations.cpsat_placement import build, literal_count
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, most_bytes
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.infeasibility.places import amount
from jigsaw_opt.solvers.infeasibility.plan_feasibility import PlanCheck, has_solution

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

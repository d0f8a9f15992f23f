"""Why there is no plan: the certain causes before any search, and a minimal conflict after a proof.

A finite horizon never runs out of time and a period may be as long as it takes, so an instance is infeasible
only for its placement (types, reach, memory) and its depth rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.job import FreeDepth
from jigsaw_opt.problem.pieces import PieceGraph, Pieces, cut
from jigsaw_opt.solvers.result import Conflict

__all__ = ["certain_causes", "minimal_conflict", "restrict"]


def certain_causes(pieces: Pieces) -> tuple[Conflict, ...]:
    """Causes that need no search, in the user's terms; empty where none is certain.

    Parameters
    ----------
    pieces
        The instance, cut.
    """
    alone = [cause for number in range(len(pieces.jobs)) for cause in _job_causes(pieces, number)]
    return tuple(alone) or tuple(_shared_memory(pieces))


def restrict(pieces: Pieces, jobs: Sequence[int]) -> Pieces:
    """The same instance with only the jobs of these numbers."""
    chosen = tuple(pieces.instance.jobs[number] for number in jobs)
    return cut(replace(pieces.instance, jobs=chosen))


def minimal_conflict(pieces: Pieces, feasible: Callable[[Pieces], bool]) -> Conflict:
    """Jobs that cannot hold together, none of which can be spared: a deletion filter.

    Parameters
    ----------
    pieces
        An instance that is proven infeasible.
    feasible
        False only where an instance is proven infeasible; where it is not decided, True.
    """
    kept = list(range(len(pieces.jobs)))
    for number in range(len(pieces.jobs)):
        without = [other for other in kept if other != number]
        if without and not feasible(restrict(pieces, without)):
            kept = without
    names = tuple(pieces.jobs[number].name for number in kept)
    if len(kept) == 1:
        return Conflict(
            "search", names, f"job {names[0]} alone has no placement and levels within memory and depth rule"
        )
    together = ", ".join(names)
    return Conflict(
        "search",
        names,
        f"jobs {together} cannot be resident together: no placement holds all of them; any one fewer may fit",
    )


def _job_causes(pieces: Pieces, number: int) -> list[Conflict]:
    job = pieces.jobs[number]
    for cause in (_depth_cause, _type_cause, _memory_cause, _reach_cause):
        found = cause(pieces, number, job)
        if found is not None:
            return [found]
    return []


def _depth_cause(pieces: Pieces, number: int, job: PieceGraph) -> Conflict | None:
    """A mean depth above 1 asks for more levels than there are."""
    rule = pieces.instance.jobs[number].depth
    most = job.levels * job.slots * job.iterations
    if not isinstance(rule, FreeDepth) or job.rule.min_total <= most:
        return None
    return Conflict(
        "depth", (job.name,), f"job {job.name} asks for mean depth {rule.mean_depth}; more than 1 is impossible"
    )


def _type_cause(pieces: Pieces, number: int, job: PieceGraph) -> Conflict | None:
    """No GPU has a type that the model has times for."""
    there = sorted({server.gpu_type for server in pieces.cluster.servers})
    if set(there) & set(job.gpu_types):
        return None
    needs = " or ".join(job.gpu_types) or "no type at all"
    return Conflict("gpu_type", (job.name,), f"job {job.name} runs on {needs}; the cluster has {', '.join(there)}")


def _memory_cause(pieces: Pieces, number: int, job: PieceGraph) -> Conflict | None:
    """Its cheapest worker fits in no GPU, or no GPU holds the worker at the last level that every iteration needs."""
    servers = [server for server in pieces.cluster.servers if server.gpu_type in job.gpu_types]
    largest = max(server.gpu_memory for server in servers)
    for level in (critical.candidate_levels(job)[0], job.levels):
        needed = job.state_bytes + job.activation_bytes[level - 1]
        if needed > largest:
            return Conflict(
                "memory",
                (job.name,),
                f"a worker of job {job.name} at level {level} of {job.levels} needs {needed} bytes;"
                f" the largest GPU that it runs on has {largest}",
            )
    return None


def _reach_cause(pieces: Pieces, number: int, job: PieceGraph) -> Conflict | None:
    """More workers than GPUs that it may use in any connected part of the cluster."""
    least = job.state_bytes + job.activation_bytes[critical.candidate_levels(job)[0] - 1]
    room: dict[int, int] = {}
    for part, server in zip(pieces.routes.component, pieces.cluster.servers, strict=True):
        if server.gpu_type in job.gpu_types and least <= server.gpu_memory:
            room[part] = room.get(part, 0) + server.gpus
    most = max(room.values())
    if most >= job.slots:
        return None
    return Conflict(
        "reach",
        (job.name,),
        f"job {job.name} has {job.slots} workers on different GPUs;"
        f" at most {most} GPUs that it fits on are joined by routes",
    )


def _shared_memory(pieces: Pieces) -> list[Conflict]:
    """The state of all residents, and the activations of one worker on each GPU, exceed all memory."""
    state = sum(job.slots * job.state_bytes for job in pieces.jobs)
    memory = sum(server.gpus * server.gpu_memory for server in pieces.cluster.servers)
    if state <= memory:
        return []
    names = tuple(job.name for job in pieces.jobs if job.state_bytes)
    return [
        Conflict(
            "memory",
            names,
            f"the weights, gradients and optimiser states of all workers need {state} bytes;"
            f" all GPUs together have {memory}",
        )
    ]

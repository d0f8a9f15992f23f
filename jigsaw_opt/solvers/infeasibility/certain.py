"""Causes that rule out every plan, found without a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.critical import candidate_levels, fewest_contributors
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import deepest_level, needed_bytes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.power import PowerCap, most_watts
from jigsaw_opt.solvers.infeasibility.guarantees import broken_alone
from jigsaw_opt.solvers.infeasibility.room import amount, cause_of_power, joined_parts, more_memory, unjoined
from jigsaw_opt.solvers.infeasibility.task_graphs import causes_of_task_graph
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import agreeing, counted

__all__ = ["certain_causes", "too_wide"]


def certain_causes(operations: Operations) -> tuple[Conflict, ...]:
    """Return causes that rule out every plan, found without a search; none if it finds no cause.

    Parameters
    ----------
    operations
        The compiled instance.
    """
    alone = list(broken_alone(operations)) if operations.instance.guaranteed_jobs else []
    fine: set[tuple[object, ...]] = set()
    for job in checking_deadline(operations.jobs):
        # Blocks of one model and width are one object, so its identity says which model it is.
        key = id(job.blocks), job.rule, job.iterations, job.route_policy
        if key not in fine:
            causes = tuple(_causes_of(operations, job))
            alone += causes
            if not causes:
                fine.add(key)
    alone += chain.from_iterable(
        causes_of_task_graph(operations, graph) for graph in checking_deadline(operations.task_graphs)
    )
    if alone or operations.horizon == "finite":  # On the finite horizon jobs may follow one another.
        return tuple(alone)
    return tuple(_states_exceed_memory(operations))


def too_wide(instance: Instance) -> tuple[Conflict, ...]:
    """Return a conflict for each job with more workers than the cluster has GPUs of its types.

    `instance`: the instance, not compiled: it takes no more memory however many workers there are.
    """
    found = []
    servers, models = instance.cluster.servers, instance.models.items()
    usable = {
        name: sum(server.gpus for server in servers if server.gpu_type in model.gpu_types) for name, model in models
    }
    for job in checking_deadline(instance.jobs):
        if isinstance(job, Job) and 0 < usable[job.model] < job.workers:
            message = _too_few(job.name, job.workers, usable[job.model], instance.cluster.gpu_count)
            found.append(Conflict("reach", (job.name,), message))
    return tuple(found)


class _MemoryNeed(NamedTuple):
    """So many workers of a job need so much memory each, in bytes, because they reach a level."""

    workers: int
    level: int
    memory: int


def _causes_of(operations: Operations, job: OperationGraph) -> Iterator[Conflict]:
    """Yield why one job has no place even on an empty cluster; only the first cause that explains the others."""
    rule, most = job.rule, job.levels * job.slots * job.iterations
    if rule.min_total > most:
        asked = f"asks for {rule.min_total:,} levels in all, and full depth has only {most:,}"
        yield Conflict("depth", (job.name,), f"the mean depth of job {job.name} {asked}; choose one of at most 1")
    servers = [server for server in operations.cluster.servers if server.gpu_type in job.gpu_types]
    if not servers:
        yield Conflict("gpu_type", (job.name,), _no_type(operations, job))
    elif sum(server.gpus for server in servers) < job.slots:
        gpus = sum(server.gpus for server in servers)
        yield Conflict("reach", (job.name,), _too_few(job.name, job.slots, gpus, operations.instance.cluster.gpu_count))
    elif any(causes := tuple(_no_memory_or_path(operations, job, servers))):
        yield from causes
    elif job.power_w:
        has_place = partial(_has_place_under, operations, job, servers)
        yield from cause_of_power(operations, job.name, has_place, max(job.power_w.values()))


def _has_place_under(
    operations: Operations, job: OperationGraph, servers: Sequence[Server], caps: Sequence[PowerCap]
) -> bool:
    """Return whether a job may have a place on those of its servers where a block alone keeps each cap."""
    most = most_watts(caps)
    left = [each for each in servers if job.power_w.get(each.gpu_type, 0) <= most.get(each.name, inf)]
    return sum(server.gpus for server in left) >= job.slots and not any(_no_memory_or_path(operations, job, left))


def _no_type(operations: Operations, job: OperationGraph) -> str:
    have = ", ".join(sorted({server.gpu_type for server in operations.cluster.servers}))
    can = ", ".join(job.gpu_types) or "none"
    why = f"its model has times for {can}, the cluster has {have}"
    wanted = f"times of the model for {have}, or a server with GPUs of type {can}, are wanted"
    return f"job {job.name} runs on none of the cluster's GPU types: {why}; {wanted}"


def _too_few(job: str, workers: int, gpus: int, whole: int) -> str:
    kinds = "" if gpus == whole else f" of its types (of {whole:,} in all)"
    told = f"job {job} has {counted(workers, 'worker')} on GPUs of their own, and the cluster has"
    more = workers - gpus
    wanted = f"{counted(more, 'more GPU')} {agreeing(more)} wanted, or at most {counted(gpus, 'worker')}"
    return f"{told} {counted(gpus, 'GPU')}{kinds}; {wanted}"


def _no_memory_or_path(operations: Operations, job: OperationGraph, servers: Sequence[Server]) -> Iterator[Conflict]:
    for need in _memory_needs(job):
        room = sum(server.gpus for server in servers if server.gpu_memory >= need.memory)
        if room < need.workers:
            yield Conflict("memory", (job.name,), _no_memory(job, need, room, servers))
            return
    parts = joined_parts(operations, servers, job.route_policy)
    if all(sum(server.gpus for server in part) < job.slots for part in parts):
        gpus = max(sum(server.gpus for server in part) for part in parts)
        message = unjoined(job.name, job.slots, "worker", gpus, job.route_policy)
        yield Conflict("reach", (job.name,), message)
    elif not any(_has_place(job, part) for part in parts):
        message = f"no part of the cluster that links join has both the GPUs and the memory for job {job.name}"
        wanted = f"links between more of its GPUs, fewer than {job.slots:,} workers or a shallower depth rule may help"
        yield Conflict("memory", (job.name,), f"{message} at the depth that its rule asks for; {wanted}")


def _memory_needs(job: OperationGraph) -> list[_MemoryNeed]:
    """Return what the depth rule asks for in every iteration, level by level, deepest first."""
    levels = reversed(candidate_levels(job))
    needs = ((d, needed_bytes([(job.state_bytes, job.activation_bytes[d - 1])])) for d in levels)
    return [_MemoryNeed(fewest_contributors(job, d), d, need) for d, need in needs]


def _no_memory(job: OperationGraph, need: _MemoryNeed, room: int, servers: Sequence[Server]) -> str:
    who, them = counted(need.workers, "worker"), agreeing(room, "GPU of its types has", "GPUs of its types have")
    bytes_each = f"{need.memory:,} bytes ({job.state_bytes:,} of state and the rest of activations)"
    have = max(server.gpu_memory for server in servers)
    found = f"the largest GPU of its types has {have:,}" if room == 0 else f"only {room:,} {them} them"
    told = f"job {job.name} has {who} at level {need.level} in every iteration, each needs {bytes_each}, and {found}"
    return told + more_memory(need.workers, need.memory, servers)


def _has_place(job: OperationGraph, servers: Sequence[Server]) -> bool:
    """Return whether the servers alone have GPUs with the memory for every level, and for the least total."""
    for need in _memory_needs(job):
        if sum(server.gpus for server in servers if server.gpu_memory >= need.memory) < need.workers:
            return False
    if job.rule.multiset is not None:
        return True
    on_server = ([deepest_level(job, server.gpu_memory)] * server.gpus for server in servers)
    depths = sorted(chain.from_iterable(on_server), reverse=True)
    most = job.iterations * sum(depths[: job.slots])
    return most >= min(job.rule.min_total, job.iterations * job.slots * job.levels)


class _KeptMemory(NamedTuple):
    """Memory that workers or a slot of a job keep on GPUs of some types all the time.

    On each GPU, `least` comes on top of it.
    """

    job: str
    gpu_types: frozenset[str]
    number: int
    bytes: int
    least: int


def _residents(operations: Operations) -> Iterator[_KeptMemory]:
    existing = {server.gpu_type for server in operations.cluster.servers}
    for job in checking_deadline(operations.jobs):
        least = job.activation_bytes[candidate_levels(job)[0] - 1]
        yield _KeptMemory(
            job.name, frozenset(existing & set(job.gpu_types)), job.slots, job.slots * job.state_bytes, least
        )
    for graph in checking_deadline(operations.task_graphs):
        for slot, types in zip(graph.shape.slots, graph.gpu_types, strict=True):
            yield _KeptMemory(graph.job.name, frozenset(existing & set(types)), 1, slot.memory, 0)


def _states_exceed_memory(operations: Operations) -> Iterator[Conflict]:
    """Yield the cause that what all jobs on some GPU types keep exceeds the memory there (cyclic horizon)."""
    residents = tuple(_residents(operations))
    usable = frozenset(server.gpu_type for server in operations.cluster.servers)
    who = "workers and slots" if operations.is_mixed else "slots" if operations.task_graphs else "workers"
    for types in {resident.gpu_types for resident in residents} | {usable}:
        inside = [resident for resident in residents if resident.gpu_types <= types]
        least = min((resident.least for resident in inside), default=0)
        # A GPU that holds any worker keeps the activations of one.
        memory = sum(s.gpus * max(0, s.gpu_memory - least) for s in operations.cluster.servers if s.gpu_type in types)
        states = sum(resident.bytes for resident in inside)
        if states > memory:
            count, kinds = sum(resident.number for resident in inside), ", ".join(sorted(types))
            beside = " beside the activations" if least else ""
            message = (
                f"the states of {count:,} {who} take {states:,} bytes, and the GPUs of type {kinds} "
                f"have {memory:,}{beside}; {amount(states - memory)} more in all are wanted"
            )
            yield Conflict("memory", tuple(dict.fromkeys(resident.job for resident in inside)), message)
            return

"""Causes that rule out every plan, or a place of a job on an empty cluster, found without a search."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product
from math import inf
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.critical import candidate_levels, fewest_contributors
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import deepest_level, needed_bytes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.power import PowerCap, most_watts
from jigsaw_opt.problem.task_graph import TaskGraphBlock
from jigsaw_opt.solvers.infeasibility.guarantees import broken_alone
from jigsaw_opt.solvers.infeasibility.room import amount, cause_of_power, joined_parts, more_memory, unjoined
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import agreeing, counted


def causes_of_task_graph(operations: Operations, graph: CompiledTaskGraph) -> Iterator[Conflict]:
    """Yield the first cause why a job with a task graph has no place even alone.

    Slots are on GPUs of their own. So the slots that depend on some types, and take at least so much memory, are
    no more than the GPUs of these types with that memory.
    """
    servers, name = operations.cluster.servers, graph.job.name
    existing = frozenset(server.gpu_type for server in servers)
    kinds, needs = [existing & set(types) for types in graph.gpu_types], _least_bytes(graph)
    for types in sorted(dict.fromkeys([*kinds, existing]), key=len):
        slots = [number for number, kind in enumerate(kinds) if kind <= types]
        usable = [server for server in servers if server.gpu_type in types]
        told = _too_few_for_slots(graph, slots, usable, existing) or _too_small(
            graph, [needs[slot] for slot in slots], usable
        )
        if told is not None:
            yield Conflict(told[0], (name,), told[1])
            return
    usable = [server for server in servers if any(server.gpu_type in kind for kind in kinds)]
    parts = joined_parts(operations, usable, graph.job.route_policy)
    gpus = max(sum(server.gpus for server in part) for part in parts)
    if gpus < len(kinds):
        yield Conflict("reach", (name,), unjoined(name, len(kinds), "slot", gpus, graph.job.route_policy))
        return
    most = max(max((block.power_w or {}).values(), default=0) * len(slots) for block, slots in _blocks(graph))
    yield from cause_of_power(operations, name, partial(_slots_have_place, graph, servers, needs), most)


def _blocks(graph: CompiledTaskGraph) -> Iterator[tuple[TaskGraphBlock, tuple[int, ...]]]:
    """Yield each block with the numbers of its slots."""
    return zip(graph.shape.blocks, graph.takes_part, strict=False)


def _slots_have_place(
    graph: CompiledTaskGraph, servers: Sequence[Server], needs: Sequence[int], caps: Sequence[PowerCap]
) -> bool:
    """Return whether slots may have GPUs of their own on which no block, running alone, draws more than a cap allows.

    A block on several slots draws at least the sum of what is least for each of them.
    """
    most = most_watts(caps)
    places = []
    for own, kinds, need in zip(graph.blocks_of, graph.gpu_types, needs, strict=True):
        drawn = {kind: max(_watts(graph.shape.blocks[block], kind) for block in own) for kind in kinds}
        fits = (s for s, server in enumerate(servers) if server.gpu_memory >= need and server.gpu_type in drawn)
        places.append(frozenset(s for s in fits if drawn[servers[s].gpu_type] <= most.get(servers[s].name, inf)))
    if any(sum(place <= some for place in places) > sum(servers[s].gpus for s in some) for some in set(places)):
        return False
    for cap, (block, slots) in product(caps, ((block, slots) for block, slots in _blocks(graph) if len(slots) > 1)):
        drawn_by = {s: _watts(block, server.gpu_type) for s, server in enumerate(servers) if server.name in cap.servers}
        if sum(min(drawn_by.get(s, 0) for s in places[slot]) for slot in slots) > cap.watts:
            return False
    return True


def _watts(block: TaskGraphBlock, gpu_type: str) -> int:
    """Return what a block draws on a GPU of a type."""
    return (block.power_w or {}).get(gpu_type, 0)


def _too_few_for_slots(
    graph: CompiledTaskGraph, slots: Sequence[int], servers: Sequence[Server], existing: frozenset[str]
) -> tuple[str, str] | None:
    """Return kind and message if more slots depend on some types than these have GPUs; else None."""
    gpus = sum(server.gpus for server in servers)
    if len(slots) <= gpus:
        return None
    if not servers:
        slot, can = graph.shape.slots[slots[0]].name, ", ".join(graph.gpu_types[slots[0]]) or "no type"
        have = ", ".join(sorted(existing))
        why = f"all its blocks have times for {can}, the cluster has {have}"
        wanted = f"times of its blocks for {have}, or {counted(len(slots), 'more GPU')} of other types, are wanted"
        return (
            "gpu_type",
            f"slot {slot} of job {graph.job.name} runs on none of the cluster's GPU types: {why}; {wanted}",
        )
    kinds = ", ".join(sorted({server.gpu_type for server in servers}))
    message = f"job {graph.job.name} has {counted(len(slots), 'slot')} on GPUs of their own of type {kinds}"
    more = len(slots) - gpus
    return "reach", f"{message}, and the cluster has {gpus:,}; {more:,} more {agreeing(more)} wanted"


def _too_small(graph: CompiledTaskGraph, needs: list[int], servers: Sequence[Server]) -> tuple[str, str] | None:
    """Return kind and message if so much memory is on fewer GPUs than slots take it; else None."""
    ascending, gpus_of = sorted(needs), Counter[int]()
    for server in servers:
        gpus_of[server.gpu_memory] += server.gpus
    for memory in sorted(set(needs), reverse=True):
        count = len(needs) - bisect_left(ascending, memory)
        gpus = sum(number for size, number in gpus_of.items() if size >= memory)
        if gpus < count:
            who = f"{counted(count, 'slot')} that {agreeing(count, 'takes', 'take')}"
            kinds = ", ".join(sorted({server.gpu_type for server in servers}))
            message = f"job {graph.job.name} has {who} at least {memory:,} bytes of a GPU of type {kinds}"
            found = (
                f"and {counted(gpus, 'GPU')} {agreeing(gpus, 'has', 'have')} so much"
                if gpus
                else f"and the largest has {max(gpus_of):,}"
            )
            return "memory", f"{message}, {found}{more_memory(count, memory, servers)}"
    return None


def _least_bytes(graph: CompiledTaskGraph) -> list[int]:
    """Return, by slot, what it takes at some moment in every plan: its memory, and what is surely held during a block.

    A hold from a block to the same is sure; one to another block holds nothing where that one ends first.
    """
    after = {(before, later) for before, later, lag in graph.edges if lag == 0}
    held = Counter[tuple[int, int]]()
    for hold in graph.holds:
        if hold.start == hold.end or (hold.start, hold.end) in after:
            for block in {hold.start, hold.end}:
                held[hold.slot, block] += hold.bytes
    most = Counter[int]()
    for (slot, _), size in held.items():
        most[slot] = max(most[slot], size)
    return [slot.memory + most[number] for number, slot in enumerate(graph.shape.slots)]


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
    for job in checking_deadline(instance.data_parallel_jobs):
        if 0 < usable[job.model] < job.workers:
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

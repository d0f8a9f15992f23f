"""Why a job with a task graph has no place even on an empty cluster: types of GPU, their memory, joining links."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import inf

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.power import PowerCap, most_watts
from jigsaw_opt.problem.task_graph import TaskGraphBlock
from jigsaw_opt.solvers.infeasibility.room import cause_of_power, joined_parts, more_memory, unjoined
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import agreeing, counted

__all__ = ["causes_of_task_graph"]


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
        told = _too_few(graph, slots, usable, existing) or _too_small(graph, [needs[slot] for slot in slots], usable)
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
    yield from cause_of_power(operations, name, partial(_has_place, graph, servers, needs), most)


def _blocks(graph: CompiledTaskGraph) -> Iterator[tuple[TaskGraphBlock, tuple[int, ...]]]:
    """Yield each block with the numbers of its slots."""
    return zip(graph.shape.blocks, graph.takes_part, strict=False)


def _has_place(
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


def _too_few(
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

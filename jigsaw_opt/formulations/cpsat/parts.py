"""Parts of a job that could change places without effect, such as micro-batches: they go in their order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.variables import TaskGraphVariables
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def add_order_of_parts(model: cp_model.CpModel, job_vars: TaskGraphVariables) -> None:
    """Order parts that are alike: each operation of one starts no later than that of the next part.

    Sort the starts that an operation has in all of them, in each iteration, and give the least to the first part and
    so on. Where ``b`` waited for ``a`` in every part, it still does. GPUs, links and barriers see the same times. So
    does memory where no hold ends before it begins: how many have begun at a time, and how many have ended, is the
    same.
    """
    for parts in alike_parts(job_vars.graph):
        forward = _holds_forward(job_vars.graph, parts[0])
        for one, other in pairwise(parts):
            # Without that, parts can only change places as a whole and in all iterations at once. One operation of the
            # first iteration then says which part comes first.
            for iteration in range(job_vars.graph.job.iterations if forward else 1):
                for before, after in zip(one, other, strict=True) if forward else [(one[0], other[0])]:
                    start = job_vars.starts[iteration][after].start
                    # Blocks of one slot do not overlap besides.
                    apart = forward and before < job_vars.graph.blocks
                    model.add(start >= (job_vars.end if apart else job_vars.start)(iteration, before))


def sorted_starts(graph: CompiledTaskGraph, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return starts by iteration and operation in the order that `add_order_of_parts` asks for.

    `rows`: starts of a plan, by iteration and operation, in microseconds.
    """
    found = [list(row) for row in rows]
    for parts in alike_parts(graph):
        if _holds_forward(graph, parts[0]):
            for row in found:
                for operations in zip(*parts, strict=True):
                    for operation, start in zip(operations, sorted(row[o] for o in operations), strict=True):
                        row[operation] = start
    return found


def _holds_forward(graph: CompiledTaskGraph, part: Sequence[int]) -> bool:
    """Return whether waits alone keep every hold of a part from ending before it begins."""
    zeros, members = [0] * graph.size, set(part)
    own = [hold for hold in graph.holds if hold.start in members]
    return all(hold.end in graph.longest_from(hold.start, zeros) for hold in own)


def alike_parts(graph: CompiledTaskGraph) -> list[list[Sequence[int]]]:
    """Return the parts of a job in groups of two or more that are alike.

    A part is a set of operations that edges or holds join. Two are alike where their operations, in the order of the
    shape, have the same slots, durations, watts, edges and holds: then all that binds a plan stays true where they
    change places in every iteration.
    """
    groups: dict[Hashable, list[Sequence[int]]] = {}
    for part in _parts(graph):
        groups.setdefault(_pattern(graph, part), []).append(part)
    return [parts for parts in groups.values() if len(parts) > 1]


def _parts(graph: CompiledTaskGraph) -> list[list[int]]:
    """Return the operations that edges or holds join, each part in the order of the task graph."""
    part_of = [[operation] for operation in range(graph.size)]
    for one, other in chain((edge[:2] for edge in graph.edges), ((hold.start, hold.end) for hold in graph.holds)):
        small, large = sorted((part_of[one], part_of[other]), key=len)
        if small is not large:
            large += small
            for operation in small:
                part_of[operation] = large
    return sorted(sorted(part) for operation, part in enumerate(part_of) if part[0] == operation)


def _pattern(graph: CompiledTaskGraph, part: Sequence[int]) -> Hashable:
    """Return all that there is to a part, its operations numbered by their place in it."""
    place = {operation: number for number, operation in enumerate(part)}
    edges = sorted((place[a], place[b], lag) for a, b, lag in graph.edges if a in place)
    holds = sorted((place[h.start], place[h.end], h.slot, h.bytes) for h in graph.holds if h.start in place)
    return tuple(_operation(graph, operation) for operation in part), tuple(edges), tuple(holds)


def _operation(graph: CompiledTaskGraph, operation: int) -> Hashable:
    """Return the slots and durations of an operation, and what it draws."""
    if operation < graph.blocks:
        block = graph.shape.blocks[operation]
        return graph.takes_part[operation], *(
            tuple(sorted(own.items())) for own in (block.duration_us, block.power_w or {})
        )
    transfer = graph.shape.transfers[operation - graph.blocks]
    return graph.takes_part[operation], transfer.bytes, bool(transfer.among)

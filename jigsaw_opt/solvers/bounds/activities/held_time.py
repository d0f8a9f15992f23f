"""Bytes times time that the memory intervals of a slot take, against what its GPU has (jobs with a task graph).

A memory interval lasts no less than the longest chain of operations from its start to its end, each of least duration.
On the cyclic horizon longer intervals overlap their own repetitions, so this is what memory alone asks of a period.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation

_MOST_STEPS = 300_000
"""Largest number of operations behind the memory intervals of a job that are visited: some tenths of a second."""


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations = context.operations
    for graph in checking_deadline(operations.task_graphs):
        lengths = _least_lengths(graph, TaskGraphData(graph, operations.cluster).least_us)
        whole = len(lengths) == len(graph.holds)
        for slot in range(len(graph.shape.slots)):
            own = [
                (hold.bytes, length)
                for hold, length in zip(graph.holds, lengths, strict=False)
                if hold.slot == slot and length > 0
            ]
            room = _room(operations, graph, slot)
            if own and room > 0:
                yield _of_slot(graph, slot, own, room, whole)


def _least_lengths(graph: CompiledTaskGraph, least_us: list[int]) -> list[int]:
    """Return the least lengths of memory intervals, in microseconds, of as many as the limit of steps allows."""
    lengths, steps = list[int](), 0
    known: dict[int, dict[int, int]] = {}
    ends: dict[int, list[int]] = {}
    for hold in graph.holds:
        ends.setdefault(hold.start, []).append(hold.end)
    for hold in graph.holds:
        if hold.start not in known:
            if steps > _MOST_STEPS:
                break
            # One search gives the chains to all ends, and many intervals begin with the same operation.
            known[hold.start] = graph.longest_from(hold.start, least_us, ends[hold.start])
            steps += len(known[hold.start])
        # Where no chain leads from start to end, the interval may take no time.
        lengths.append(known[hold.start].get(hold.end, 0))
    return lengths


def _room(operations: Operations, graph: CompiledTaskGraph, slot: int) -> int:
    """Return the most bytes that a GPU of the slot's types has beside the slot's own memory."""
    types, servers = graph.gpu_types[slot], operations.cluster.servers
    return (
        max((server.gpu_memory for server in servers if server.gpu_type in types), default=0)
        - graph.shape.slots[slot].memory
    )


def _of_slot(graph: CompiledTaskGraph, slot: int, own: list[tuple[int, int]], room: int, whole: bool) -> Bound:
    job, name = graph.job, graph.shape.slots[slot].name
    # The bytes held are always a multiple of the common divisor of all sizes, so the rest of the room is never used.
    unit = gcd(*(size for size, _ in own))
    # Where the room is less than a unit there is no plan, and any value holds; the 1 only avoids a division by 0.
    taken, units = job.iterations * sum(size // unit * length for size, length in own), max(1, room // unit)
    value = ceil_div(taken, units)
    terms = (Term("bytes times time, in units", taken, "bytes * us"), Term("unit", unit, "bytes"))
    sentence = f"what the holds of slot {name!r} of job {job.name!r} take, in the memory that its GPU has left"
    argument = {"kind": "held memory", "slot": [job.name, name], "unit": unit, "work": taken, "capacity": units}
    proof = Proof(sentence, f"ceil({taken} / {units}) = {value}", terms, (job.name,))
    # The page counts all intervals.
    return Bound(value, replace(proof, argument=argument) if whole else proof)


HELD_TIME = Relaxation(
    "held_time", _bounds, frozenset({"makespan", "period"}), instant=True, task_graphs=True, moves=True
)
"""The relaxation registered as ``held_time``."""

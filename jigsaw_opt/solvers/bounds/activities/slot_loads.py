"""Loads of slots and GPUs with heads and tails, and the longest chain of operations of a job (shaped jobs).

Durations are the least on any GPU and any route. A slot is on one GPU, so its blocks follow one another there; before
the first of them comes the least head, behind the last the least tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import TopologicalSorter

from jigsaw_opt.problem.cluster import Channel, Cluster
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.shaped_graph import ShapedGraph
from jigsaw_opt.solvers.bounds.budget import BoundBudget
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundContext, Relaxation

__all__ = ["SLOT_LOADS", "ShapedData", "earliest_end_us"]


class ShapedData:
    """What no plan beats for one shaped job, by operation of one iteration.

    Parameters
    ----------
    graph
        The job, cut.
    cluster
        The cluster.

    Attributes
    ----------
    least_us
        Least duration.
    """

    def __init__(self, graph: ShapedGraph, cluster: Cluster) -> None:
        self.graph = graph
        fabrics = [Channel((), it.fabric_bandwidth, it.fabric_latency_us) for it in cluster.servers if it.gpus > 1]
        links = [Channel((), it.bandwidth, it.latency_us) for it in cluster.links]
        ways = [*fabrics, *links] or [Channel((), cluster.servers[0].fabric_bandwidth, 0)]
        best = Channel((), max(way.rate for way in ways), min(way.latency_us for way in ways))
        self.least_us = [min(block.duration_us.values()) for block in graph.shape.blocks]
        self.least_us += [graph.transfer_us(operation, best) for operation in range(graph.blocks, graph.size)]

    def heads(self) -> list[int]:
        """By operation of all iterations on the finite horizon, what must have passed before its start."""
        return self._longest(forward=True)

    def tails(self) -> list[int]:
        """By operation of all iterations on the finite horizon, what must follow its end."""
        return self._longest(forward=False)

    def _longest(self, forward: bool) -> list[int]:
        size = self.graph.size
        before: dict[int, list[int]] = {number: [] for number in range(size * self.graph.job.iterations)}
        for first, later, _ in self.graph.precedences("finite"):
            ends = first[0] * size + first[1], later[0] * size + later[1]
            one, other = ends if forward else ends[::-1]
            before[other].append(one)
        passed = [0] * len(before)
        for number in TopologicalSorter(before).static_order():
            passed[number] = max((passed[it] + self.least_us[it % size] for it in before[number]), default=0)
        return passed


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations = context.operations
    data = [ShapedData(graph, operations.cluster) for graph in operations.shaped]
    yield from _gpu_load(operations, data)
    if operations.objective == "weighted_completion":
        yield _weighted(data)
        return
    for it in data:
        yield from _of_job(it, operations.horizon == "cyclic")


def _gpu_load(operations: Operations, data: list[ShapedData]) -> Iterator[Bound]:
    """Mean load of a GPU; with weighted ends, the last job ends no earlier."""
    if operations.objective == "weighted_completion":
        return
    works = []
    for it in data:
        parts = zip(it.least_us, it.graph.takes_part[: it.graph.blocks], strict=False)
        works.append(it.graph.job.iterations * sum(length * len(slots) for length, slots in parts))
    gpus = operations.cluster.gpu_count
    value = ceil_div(sum(works), gpus)
    terms = [Term("work", work, jobs=(it.graph.job.name,)) for work, it in zip(works, data, strict=True)]
    arithmetic = f"ceil({sum(works)} / {gpus}) = {value}"
    yield Bound(value, Proof("the work of all blocks shared out among all GPUs", arithmetic, tuple(terms)))


def _of_job(it: ShapedData, cyclic: bool) -> Iterator[Bound]:
    """Loads of the slots of a job and, on the finite horizon, its longest chain."""
    job, size = it.graph.job, it.graph.size
    heads, tails = ([0], [0]) if cyclic else (it.heads(), it.tails())
    for slot, blocks in zip(it.graph.shape.slots, it.graph.blocks_of, strict=True):
        load, head, tail = job.iterations * sum(it.least_us[block] for block in blocks), 0, 0
        if not cyclic:
            numbers = [iteration * size + block for iteration in range(job.iterations) for block in blocks]
            head, tail = job.release_us + min(heads[n] for n in numbers), min(tails[n] for n in numbers)
        value = head + load + tail
        terms = (Term("head", head), Term("work", load), Term("tail", tail))
        sentence = f"the blocks of slot {slot.name!r} of job {job.name!r}, one after the other"
        yield Bound(value, Proof(sentence, f"{head} + {load} + {tail} = {value}", terms, (job.name,)))
    if not cyclic:
        longest = max(head + it.least_us[n % size] for n, head in enumerate(heads))
        value = job.release_us + longest
        sentence = f"the longest chain of operations of job {job.name!r}"
        yield Bound(value, Proof(sentence, f"{job.release_us} + {longest} = {value}", (), (job.name,)))


def _weighted(data: list[ShapedData]) -> Bound:
    """Every job by itself."""
    terms, amounts = [], list[int]()
    for it in data:
        value = _earliest_end(it)
        amounts.append(it.graph.job.weight * value)
        terms.append(Term("end", amounts[-1], "weight * us", (it.graph.job.name,)))
    total = sum(amounts)
    return Bound(total, Proof("every job as if it were alone", f"{added(amounts)} = {total}", tuple(terms)))


def earliest_end_us(graph: ShapedGraph, cluster: Cluster) -> int:
    """A moment before which a shaped job does not end on the finite horizon, even alone."""
    return _earliest_end(ShapedData(graph, cluster))


def _earliest_end(it: ShapedData) -> int:
    return max(bound.value for bound in _of_job(it, cyclic=False))


SLOT_LOADS = Relaxation("slot_loads", _bounds, instant=True, shaped=True)
"""Loads of slots and GPUs, and longest chains."""

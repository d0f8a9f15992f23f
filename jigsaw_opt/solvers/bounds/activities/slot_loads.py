"""Loads of slots and GPUs with heads and tails, and the longest chain of operations of a job (jobs with a task graph).

Durations are the least on any GPU and any route. A slot is on one GPU, so its blocks follow one another there; before
the first of them comes the least head, behind the last the least tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from graphlib import TopologicalSorter

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel, Cluster
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.bounds.activities.arguments import Chain, chain_argument, exclusive_argument
from jigsaw_opt.solvers.bounds.arguments import sum_argument
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation

_MOST_LISTED = 20_000
"""Largest number of operations among which chains are searched."""


class TaskGraphData:
    """Least times of one job with a task graph, by operation of one iteration.

    `listed`: number of its iterations that are listed one by one; the others add to a chain as much as some of these
    do.
    """

    def __init__(self, graph: CompiledTaskGraph, cluster: Cluster) -> None:
        self.graph = graph
        fabrics = [
            Channel((), server.fabric_bandwidth, server.fabric_latency_us)
            for server in cluster.servers
            if server.gpus > 1
        ]
        links = [Channel((), link.bandwidth, link.latency_us) for link in cluster.links]
        self.least_us = [min(block.duration_us.values()) for block in graph.shape.blocks]
        if ways := [*fabrics, *links]:
            # No route beats the best rate with the least latency, whether or not there is one that has both.
            best = Channel((), max(way.rate for way in ways), min(way.latency_us for way in ways))
            self.least_us += [graph.transfer_us(operation, best) for operation in range(graph.blocks, graph.size)]
        # Without any, no transfer has a route, and no plan is bounded.
        self.least_us += [0] * (graph.size - len(self.least_us))
        # Milestones take no time.
        self.least_us += [0] * graph.milestones
        # Two iterations are the least in which a chain can come back to an operation.
        self.listed = min(graph.job.iterations, max(2, _MOST_LISTED // graph.size))
        self._orders: dict[tuple[int, bool], dict[int, list[int]]] = {}

    def with_lengths(self, lengths_us: Sequence[int]) -> TaskGraphData:
        """Return the data of the job where its operations have other durations."""
        other = copy(self)
        other.least_us = [*lengths_us, *[0] * self.graph.milestones]
        return other

    def heads(self) -> list[int]:
        """Return, by operation, the least time that must pass before its start in the first iteration."""
        return self._longest(self.waits(1, forward=True))

    def tails(self) -> list[int]:
        """Return, by operation, the least time that must follow its end in the last iteration (finite horizon)."""
        return self._longest(self.waits(1, forward=False))

    def longest_chain(self) -> tuple[int, Chain]:
        """Return the longest chain of operations on the finite horizon, its length in microseconds first.

        Where not all iterations are listed, the part of a longest chain of those that are between two iterations of
        some operation is repeated: that one which is longest for its iterations.
        """
        before, size = self.waits(self.listed, forward=True), len(self.least_us)
        heads = self._longest(before)
        path = [max(range(len(heads)), key=lambda n: heads[n] + self.least_us[n % size])]
        while before[path[-1]]:
            path.append(max(before[path[-1]], key=lambda n: heads[n] + self.least_us[n % size]))
        path.reverse()
        # If a chain leads from an operation to itself some iterations later, it can be taken again and again.
        more, last, best = self.graph.job.iterations - self.listed, dict[int, int](), (0, -1, -1, 0)
        for place in reversed(range(len(path))) if more else ():
            again = last.setdefault(path[place] % size, place)
            if again > place:
                # Only whole repetitions count, hence the division that rounds down.
                times = more // (path[again] // size - path[place] // size)
                best = max(best, (times * (heads[path[again]] - heads[path[place]]), place, again, times))
        _, first, again, times = best
        iterations = [number // size for number in path]
        lags = (later - one for one, later in zip([iterations[0], *iterations], iterations, strict=False))
        steps = [(number % size, lag) for number, lag in zip(path, lags, strict=True)]
        parts = (steps[: first + 1], 1), (steps[first + 1 : again + 1], 1 + times), (steps[again + 1 :], 1)
        return heads[path[-1]] + self.least_us[path[-1] % size] + best[0], [each for each in parts if each[0]]

    def waits(self, iterations: int, forward: bool) -> dict[int, list[int]]:
        """Return, by operation of so many iterations, those that it comes after, or before, in a topological order."""
        # No duration matters for the order, so that it is kept for all `with_lengths`.
        if (iterations, forward) in self._orders:
            return self._orders[iterations, forward]
        graph, size = self.graph, len(self.least_us)
        before: dict[int, list[int]] = {number: [] for number in range(size * iterations)}
        listed = replace(graph, job=altered(graph.job, iterations=iterations))
        for first, later, _ in listed.precedences("finite"):
            ends = first[0] * size + first[1], later[0] * size + later[1]
            one, other = ends if forward else ends[::-1]
            before[other].append(one)
        ordered = {number: before[number] for number in TopologicalSorter(before).static_order()}
        self._orders[iterations, forward] = ordered
        return ordered

    def _longest(self, before: Mapping[int, list[int]]) -> list[int]:
        size, least_us = len(self.least_us), self.least_us
        passed = [0] * len(before)
        for number, waits_for in before.items():
            passed[number] = max((passed[previous] + least_us[previous % size] for previous in waits_for), default=0)
        return passed


def task_graph_data(context: BoundContext) -> list[TaskGraphData]:
    """Return the least times of each job with a task graph, for `BoundContext.shared`."""
    operations = context.operations
    return [TaskGraphData(graph, operations.cluster) for graph in checking_deadline(operations.task_graphs)]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations, data = context.operations, context.shared(task_graph_data)
    if operations.objective == "weighted_completion":
        yield _weighted(data)
        return
    yield load_of_gpus(operations.cluster, [work_of(job_data) for job_data in data])
    for job_data in data:
        yield from _of_job(job_data, operations.horizon == "cyclic")


def work_of(job_data: TaskGraphData) -> tuple[str, int, int]:
    """Return the name and the release of a job, and the least time of all its blocks on all their GPUs."""
    graph = job_data.graph
    parts = zip(job_data.least_us, graph.takes_part[: graph.blocks], strict=False)
    return graph.job.name, graph.job.release_us, graph.job.iterations * sum(us * len(slots) for us, slots in parts)


def load_of_gpus(cluster: Cluster, works: Sequence[tuple[str, int, int]]) -> Bound:
    """Return the mean load of a GPU after the first release, given name, release and work of each job.

    It says nothing about weighted completion times.
    """
    return shared_work(works, cluster.gpu_count, "the work of all blocks shared out among all GPUs")


def shared_work(
    works: Sequence[tuple[str, int, int]], capacity: int, sentence: str, cap: PowerCap | None = None
) -> Bound:
    """Return the bound of work that all GPUs share, or of watts times time under a power cap, as `load_of_gpus`."""
    names, releases, amounts = zip(*works, strict=True)
    head = min(releases)
    value = head + ceil_div(sum(amounts), capacity)
    unit, fields, servers = ("us", {}, ()) if cap is None else ("W * us", {"cap": cap.name}, cap.servers)
    terms = [Term("head", head), *(Term("work", work, unit, (name,)) for name, _, work in works)]
    terms += [Term("GPUs", capacity, "")] if cap is None else []
    arithmetic = f"{head} + ceil(({added(amounts)}) / {capacity}) = {value}"
    argument = {"kind": "shared work", **fields, "head": head, "jobs": dict(zip(names, amounts, strict=True))}
    return Bound(value, Proof(sentence, arithmetic, tuple(terms), names, servers, argument=argument))


def _of_job(job_data: TaskGraphData, cyclic: bool) -> Iterator[Bound]:
    """Yield the loads of the slots of a job and, on the finite horizon, its longest chain."""
    job = job_data.graph.job
    # Neighbouring periods overlap, so neither a head nor a tail is idle time there.
    heads, tails = ([0], [0]) if cyclic else (job_data.heads(), job_data.tails())
    for slot, blocks in zip(job_data.graph.shape.slots, job_data.graph.blocks_of, strict=True):
        load, head, tail = job.iterations * sum(job_data.least_us[block] for block in blocks), 0, 0
        if not cyclic:
            head, tail = job.release_us + min(heads[n] for n in blocks), min(tails[n] for n in blocks)
        value = head + load + tail
        terms = (Term("head", head), Term("work", load), Term("tail", tail))
        sentence = f"the blocks of slot {slot.name!r} of job {job.name!r}, one after the other"
        argument = exclusive_argument({"slot": [job.name, slot.name]}, head, tail)
        proof = Proof(sentence, f"{head} + {load} + {tail} = {value}", terms, (job.name,), argument=argument)
        yield Bound(value, proof)
    if not cyclic:
        longest, chain = job_data.longest_chain()
        value = job.release_us + longest
        parts = (Term("release", job.release_us), Term("span", longest))
        sentence = f"the longest chain of operations of job {job.name!r}"
        arithmetic = f"{job.release_us} + {longest} = {value}"
        own = chain_argument(job_data.graph, chain)
        yield Bound(value, Proof(sentence, arithmetic, parts, (job.name,), argument=own))


def _weighted(data: list[TaskGraphData]) -> Bound:
    """Return the weighted sum of the earliest ends, each job by itself."""
    return sum_of_ends(data, [earliest_end(job_data) for job_data in data], "every job as if it were alone")


def sum_of_ends(data: Sequence[TaskGraphData], ends: Sequence[Bound], sentence: str) -> Bound:
    """Return the bound on weighted completion that bounds on the end of each job alone add up to."""
    amounts = [job_data.graph.job.weight * end.value for job_data, end in zip(data, ends, strict=True)]
    names, total = [job_data.graph.job.name for job_data in data], sum(amounts)
    terms = tuple(Term("end", amount, "weight * us", (name,)) for amount, name in zip(amounts, names, strict=True))
    parts = sum_argument([([name], end.proof.argument) for name, end in zip(names, ends, strict=True)])
    return Bound(total, Proof(sentence, f"{added(amounts)} = {total}", terms, argument=parts))


def earliest_end(job_data: TaskGraphData) -> Bound:
    """Return a lower bound on the end of a job with a task graph on the finite horizon, alone on the cluster."""
    return max(_of_job(job_data, cyclic=False), key=lambda bound: bound.value)


SLOT_LOADS = Relaxation("slot_loads", _bounds, instant=True, task_graphs=True, moves=True)
"""Loads of slots and GPUs, and longest chains."""

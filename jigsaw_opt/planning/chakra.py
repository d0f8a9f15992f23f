"""A plan as execution traces of Chakra: one for each GPU, with what it computes and exchanges in the plan's order.

Readers of such traces start a node once all nodes that it waits for have ended. So a block of which a bucket is ready
before its end is several nodes, and the order of the plan on a GPU is stated as waits, too. The milestone of a
barrier is a barrier among its GPUs, or on one GPU a block that takes no time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from jigsaw_opt.documents.readers.chakra.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    ChakraNode,
    Collective,
)
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Gpu, Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.activities.timetables import gpus_of, planned_network, starts_of


@dataclass(frozen=True, slots=True)
class ChakraTraces:
    """The traces of a plan.

    `gpus`: by rank, the name of its GPU; GPUs without work have no trace. `nodes`: by rank, its nodes in the order of
    the plan. `all_reduces`: how many transfers are written as all-reduces of their bytes. `unsaid`: how many waits
    between GPUs no transfer stands for, so that the traces do not state them.
    `turns`: GPUs whose memory all jobs together exceed, and licences that they do, which traces do not state either.
    """

    gpus: tuple[str, ...]
    nodes: tuple[tuple[ChakraNode, ...], ...]
    all_reduces: int
    unsaid: int
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _NamedActivity:
    """The name of an activity, and of a transfer its GPUs and bytes; a message has its sender first.

    A milestone has GPUs as well, and no bytes. What is of one GPU alone takes no time there.
    """

    name: str
    gpus: tuple[Gpu, ...] = ()
    bytes: int = 0
    is_message: bool = False
    is_milestone: bool = False


def chakra_traces(instance: Instance, plan: Plan) -> ChakraTraces:
    """Return the traces of a plan that keeps every rule; of a cyclic one, those of one period."""
    operations, timetable = compile_instance(instance), Timetable.of(plan.jobs, plan.period_us)
    network = planned_network(operations, timetable, within_slots=True)
    starts = network.with_milestones(starts_of(timetable), plan.period_us)
    named = _named(operations, gpus_of(operations, timetable), [len(job.iterations) for job in timetable.plans])
    cluster, scarce = instance.cluster, [f"licence {each.name}" for each in instance.scarce_capacities]
    needed = {gpu: size + network.activation_bytes[gpu] for gpu, size in sorted(network.memory_bytes.items())}
    full = [f"GPU {cluster.gpu_name(*gpu)}" for gpu in needed if needed[gpu] > cluster.servers[gpu[0]].gpu_memory]
    return replace(_Writer(operations, network, starts, named).traces(), turns=(*full, *scarce))


def _named(operations: Operations, gpus: list[list[Gpu]], iterations: list[int]) -> list[_NamedActivity]:
    """Return the names of all activities, in the order of the network."""
    found: list[_NamedActivity] = []
    for job, own, count in zip(operations.jobs, gpus, iterations, strict=False):
        for iteration in range(count):
            found += [_NamedActivity(f"{job.name} {iteration} worker {block.slot}") for block in job.blocks]
            for it in job.transfers:
                found.append(_NamedActivity(f"{job.name} {iteration} bucket {it.bucket}", tuple(own), it.payload_bytes))
    behind = len(operations.jobs)
    for graph, own, count in zip(operations.task_graphs, gpus[behind:], iterations[behind:], strict=True):
        for iteration in range(count):
            found += [_NamedActivity(f"{graph.job.name} {iteration} {block.name}") for block in graph.shape.blocks]
            for number, sent in enumerate(graph.shape.transfers, graph.blocks):
                ends = tuple(own[slot] for slot in graph.takes_part[number])
                found.append(
                    _NamedActivity(f"{graph.job.name} {iteration} {sent.name}", ends, sent.bytes, not sent.among)
                )
        for iteration in range(count):
            for slots in graph.milestone_slots:
                ends = tuple(own[slot] for slot in slots)
                found.append(_NamedActivity(f"{graph.job.name} {iteration} barrier", ends, is_milestone=True))
    return found


class _Writer:
    """Writes nodes in the order of the plan, and keeps what has been written of each activity on each GPU."""

    def __init__(
        self, operations: Operations, network: ActivityNetwork, starts: list[int], named: list[_NamedActivity]
    ) -> None:
        self._network, self._starts, self._named = network, starts, named
        self._order = sorted(range(len(starts)), key=lambda k: (starts[k], network.activities[k].duration_us > 0, k))
        self._gpus_of = [it.gpus or own.gpus for it, own in zip(network.activities, named, strict=True)]
        used = sorted({gpu for own in self._gpus_of for gpu in own})
        self._rank = {gpu: rank for rank, gpu in enumerate(used)}
        self._names = tuple(operations.cluster.gpu_name(*gpu) for gpu in used)
        self._nodes: list[list[ChakraNode]] = [[] for _ in used]
        self._waits: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
        cuts: list[set[int]] = [{it.duration_us} for it in network.activities]
        for before, after, periods, offset in network.waits:
            if not periods:
                self._waits[after].append((before, offset))
                cuts[before].add(network.activities[before].duration_us if offset is None else offset)
        self._cuts = [sorted(own) for own in cuts]
        self._written: list[dict[Gpu, list[int]]] = [{} for _ in starts]
        self._last: dict[tuple[Gpu, bool], list[tuple[int, int]]] = defaultdict(list)
        self._known: dict[int, int] = {}  # by activity, a bit for each one that has ended before it as traces state
        self.unsaid = 0

    def traces(self) -> ChakraTraces:
        """Write everything."""
        for number in self._order:
            for gpu in self._gpus_of[number]:
                self._write(number, gpu)
            self._count_unsaid(number)
        among = sum(len(each.gpus) > 1 and not (each.is_message or each.is_milestone) for each in self._named)
        return ChakraTraces(self._names, tuple(map(tuple, self._nodes)), among, self.unsaid)

    def _write(self, number: int, gpu: Gpu) -> None:
        """Write an activity on one of its GPUs: a node for each part of a block, or one of a transfer."""
        it, named, start = self._network.activities[number], self._named[number], self._starts[number]
        after = set()
        for before, offset in self._waits[number]:
            parts = self._written[before].get(gpu)
            if parts:
                after.add(parts[-1 if offset is None else self._cuts[before].index(offset)])
        track = self._last[gpu, bool(it.gpus)]
        after.update(node for node, end in track[-1:] if end <= start)
        nodes = self._nodes[self._rank[gpu]]
        mine = self._written[number].setdefault(gpu, [])
        begun = 0
        for end in self._cuts[number] if it.gpus else [it.duration_us]:
            waits = tuple(sorted(after)) if not mine else (mine[-1],)
            kind, attributes = self._kind(number, gpu)
            length = end - begun
            own = {"is_cpu_op": False, **attributes}
            nodes.append(ChakraNode(len(nodes), named.name, kind, waits, length, start + begun, own))
            mine.append(len(nodes) - 1)
            begun = end
        track.append((mine[-1], start + it.duration_us))
        track.sort(key=lambda last: last[1])

    def _kind(self, number: int, gpu: Gpu) -> tuple[int, dict[str, object]]:
        named = self._named[number]
        if len(named.gpus) < 2:
            return COMPUTE, {}
        size: dict[str, object] = {"comm_size": named.bytes}
        if not named.is_message:
            members = " ".join(str(self._rank[each]) for each in named.gpus)
            collective = Collective.BARRIER if named.is_milestone else Collective.ALL_REDUCE
            return COLLECTIVE, {**size, "comm_type": int(collective), "pg_name": members}
        source, target = (self._rank[each] for each in named.gpus)
        kind = SEND if gpu == named.gpus[0] else RECEIVE
        return kind, {**size, "comm_src": source, "comm_dst": target, "comm_tag": number}

    def _count_unsaid(self, number: int) -> None:
        """Count the waits of an activity that follow from none of those that the traces state."""
        own, known = set(self._gpus_of[number]), 0
        for before, offset in self._waits[number]:
            if not own.isdisjoint(self._gpus_of[before]):
                whole = offset is None or offset == self._network.activities[before].duration_us
                known |= self._known[before] | (1 << before if whole else 0)
        self._known[number] = known
        self.unsaid += sum(
            own.isdisjoint(self._gpus_of[before]) and not known >> before & 1 for before, _ in self._waits[number]
        )

"""Execution traces of Chakra as the task graph of a job: a slot for each rank.

What a GPU computes is a block. The collectives of the ranks of a process group are one transfer, the first of its kind
of each rank with the first of the others, and so on; a send and its receive are one transfer, too. What of a rank is
kept, and what waits for what, is in `ChakraRank`.

A transfer among slots is timed as a ring all-reduce (specification: transfer), so another collective has the bytes of
an all-reduce that moves as much over each link. The input of `S` bytes of each of `p` ranks makes a ring move
`2 S (p - 1) / p` for an all-reduce, `S (p - 1) / p` for a reduce-scatter, a scatter or an all-to-all, `S (p - 1)` for
an all-gather or a gather, and `S` for a broadcast or a reduce (Thakur, Rabenseifner and Gropp, *Optimization of
collective communication operations in MPICH*, 2005; *Performance reported by NCCL tests*).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from jigsaw_opt.documents.readers.chakra.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    ChakraNode,
    ChakraRank,
    Collective,
    decode_trace,
)
from jigsaw_opt.errors import InvalidInputError, Problem, wrong_input
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphTransfer
from jigsaw_opt.text import Tell, counted, say_nothing

_MOST_OF_ALL = 1_000_000
"""Nodes of all ranks for which one trace stands."""
_MOST_SIZE = 2**53 - 1
_NAMES: Mapping[int, str] = {kind: kind.told for kind in Collective}
_UNSTATED = -1
"""The kind of a collective that states none."""
_Part = tuple[int, int]
"""A place among the ranks, and a node of this rank."""
_RANK = re.compile(r"\.([0-9]{1,9})\.et(\.gz)?$")


def read_chakra(traces: Mapping[str, bytes], gpu_type: str, workers: int = 1, tell: Tell = say_nothing) -> TaskGraph:
    """Read the traces of all ranks of a job, or one that stands for every rank.

    With ``job`` as its barrier: a trace is an iteration.

    `traces`: the content of each file by its name. Names as in ``job.3.et`` have the rank, or else their order is that
    of the ranks. `tell`: receives sentences about what was left out.
    """
    problems: list[Problem] = []
    ranks: list[ChakraRank] = []
    named = [_RANK.search(name) for name in traces]
    numbered = len(traces) > 1 and all(named)
    for place, (source, data) in enumerate(traces.items()):
        match = named[place]
        number = int(match[1]) if match and numbered else place
        try:
            ranks.append(ChakraRank.of(number, source, decode_trace(data, source)))
        except InvalidInputError as error:
            problems += error.problems
    twice = [number for number, times in Counter(rank.number for rank in ranks).items() if times > 1]
    problems += [
        Problem(rank.source, f"is of rank {rank.number}, as another file is", code="duplicate-name")
        for rank in ranks
        if rank.number in twice
    ]
    ranks.sort(key=lambda rank: rank.number)
    if not problems and ranks[-1].number >= len(ranks):
        missing = next(number for number, rank in enumerate(ranks) if rank.number != number)
        told = f"is of rank {ranks[-1].number}, and the trace of rank {missing} is missing"
        problems.append(Problem(ranks[-1].source, told, "give the traces of all ranks", code="missing-field"))
    if problems:
        raise InvalidInputError(problems)
    if len(ranks) == 1:
        if len(ranks[0].kept) * workers > _MOST_OF_ALL:
            told = f"has {len(ranks[0].kept)} nodes of a GPU for each of {workers} ranks; at most {_MOST_OF_ALL:,} fit"
            raise wrong_input(ranks[0].source, told, code="too-large")
        ranks = [replace(ranks[0], number=number) for number in range(workers)]
    graph, kinds = _task_graph(ranks, gpu_type)
    _tell(ranks, len(traces), kinds, tell)
    early = _transfers_without_work(graph)
    if early:
        tell(f"{counted(early, 'transfer')} may start at once: the trace names no computation before")
    return graph


class _Matching:
    """Blocks of all ranks, and transfers of those nodes that belong together.

    `names`: by rank and node, the name of its block or transfer. `kinds`: how many collectives there are of each kind.
    """

    def __init__(self, ranks: list[ChakraRank], gpu_type: str) -> None:
        self._ranks, self._pairs = ranks, _pairs(ranks)
        self.blocks: list[TaskGraphBlock] = []
        self.transfers: list[TaskGraphTransfer] = []
        self.names: dict[_Part, str] = {}
        self.kinds: Counter[int] = Counter()
        self.problems: list[Problem] = []
        collectives: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        messages: dict[tuple[int, int, int], dict[int, list[_Part]]] = defaultdict(lambda: defaultdict(list))
        for index, rank in enumerate(ranks):
            for number, node in rank.kept.items():
                if node.kind == COMPUTE:
                    name = self.names[index, number] = rank.called(number)
                    self.blocks.append(TaskGraphBlock(name, (str(rank.number),), {gpu_type: node.duration_us}))
                elif node.kind == COLLECTIVE:
                    group, kind = str(node.attributes.get("pg_name", "")), node.attributes.get("comm_type", _UNSTATED)
                    collectives[group, kind][index].append(number)
                elif (ends := self._ends(rank, node)) is not None:
                    messages[ends][node.kind].append((index, number))
        for (group, kind), parts in collectives.items():
            self._add_collectives(group, kind, parts)
        for (source, target, _), sides in messages.items():
            self._add_messages(source, target, sides[SEND], sides[RECEIVE])

    def _ends(self, rank: ChakraRank, node: ChakraNode) -> tuple[int, int, int] | None:
        """Return source, target and tag of a message; None where its peer is not known, or it is of another rank."""
        own, other = ("comm_src", "comm_dst") if node.kind == SEND else ("comm_dst", "comm_src")
        group = self._pairs.get(str(node.attributes.get("pg_name")), set())
        peer = node.attributes.get(other, next(iter(group - {rank.number}), None))
        if peer is None:
            told = f"does not say its {other}, and no group of two ranks does"
            self.problems.append(Problem(f"{rank.source}: node {node.number}", told, code="missing-field"))
            return None
        stated = node.attributes.get(own, rank.number)
        if stated != rank.number:
            told = f"states {own} {stated}, and the trace is of rank {rank.number}"
            hint = "number ranks through the job, not in each group, and give the files in the order of their ranks"
            self.problems.append(Problem(f"{rank.source}: node {node.number}", told, hint, code="mismatch"))
            return None
        source, target = (stated, peer) if node.kind == SEND else (peer, stated)
        return source, target, node.attributes.get("comm_tag", 0)

    def _add_collectives(self, group: str, kind: int, parts: Mapping[int, list[int]]) -> None:
        """Add the collectives of one kind of a process group, by rank."""
        ranks = self._ranks
        if len(parts) < 2 or len({len(own) for own in parts.values()}) > 1:
            told = ", ".join(f"{len(own)} of rank {ranks[index].number}" for index, own in parts.items())
            named = f" of group {group!r}" if group else ""
            told = f"collectives of kind {_NAMES.get(kind, kind)}{named} do not belong together: {told}"
            where = ranks[min(parts)].source
            self.problems.append(Problem(where, told, "give the traces of all ranks", code="mismatch"))
            return
        for together in zip(*parts.values(), strict=True):
            each = list(zip(parts, together, strict=True))
            among = tuple(str(ranks[index].number) for index in parts)
            self._add(TaskGraphTransfer(self._called(each[0]), self._size(each, kind), among=among), each)
            self.kinds[kind] += 1

    def _add_messages(self, source: int, target: int, sent: list[_Part], received: list[_Part]) -> None:
        """Add what one rank sends another one with one tag."""
        if len(sent) != len(received) or source == target:
            index, number = (sent or received)[0]
            told = (
                f"rank {source} sends {counted(len(sent), 'message')} to rank {target}, which receives {len(received)}"
            )
            self.problems.append(Problem(f"{self._ranks[index].source}: node {number}", told, code="mismatch"))
            return
        for pair in zip(sent, received, strict=True):
            name, size = self._called(pair[0]), self._size(list(pair))
            self._add(TaskGraphTransfer(name, size, source=str(source), target=str(target)), pair)

    def _called(self, part: _Part) -> str:
        index, number = part
        return self._ranks[index].called(number)

    def _size(self, parts: list[_Part], kind: int | None = None) -> int:
        """Return the bytes of a transfer, which all of its ranks must state alike; of a collective as an all-reduce."""
        if kind == Collective.BARRIER:
            return 0
        stated = {}
        for index, number in parts:
            node = self._ranks[index].kept[number]
            value = node.attributes.get("comm_size", node.attributes.get("tensor_size"))
            where = f"{self._ranks[index].source}: node {number}"
            if type(value) is not int or not 0 <= value <= _MOST_SIZE:
                told = "does not say its bytes, comm_size" if value is None else f"has no possible comm_size: {value!r}"
                self.problems.append(Problem(where, told, code="missing-field" if value is None else "out-of-range"))
                return 0
            stated[where] = value
        if len(set(stated.values())) > 1:
            told = "ranks state different sizes of one transfer: " + ", ".join(f"{w} {b}" for w, b in stated.items())
            self.problems.append(Problem(next(iter(stated)), told, code="mismatch"))
        size = max(stated.values())
        if kind is None or self.problems:
            return size
        moved = _all_reduce_bytes(kind, size, len(parts))
        if moved > _MOST_SIZE:
            told = f"moves as much as an all-reduce of {moved} bytes; at most {_MOST_SIZE} are possible"
            self.problems.append(Problem(next(iter(stated)), told, code="out-of-range"))
        return moved

    def _add(self, transfer: TaskGraphTransfer, parts: Iterable[_Part]) -> None:
        self.transfers.append(transfer)
        self.names |= dict.fromkeys(parts, transfer.name)


def _task_graph(ranks: list[ChakraRank], gpu_type: str) -> tuple[TaskGraph, Counter[int]]:
    """Return the task graph, and how many collectives there are of each kind."""
    found = _Matching(ranks, gpu_type)
    if found.problems:
        raise InvalidInputError(found.problems)
    if not found.blocks:
        raise wrong_input(ranks[0].source, "no GPU computes anything that takes time", code="empty")
    edges = dict.fromkeys(
        (found.names[index, before], found.names[index, number])
        for index, rank in enumerate(ranks)
        for number, waits in rank.after.items()
        for before in waits
    )
    slots = tuple(Slot(str(rank.number)) for rank in ranks)
    parts = tuple(found.blocks), tuple(found.transfers), tuple(Edge(*pair) for pair in edges)
    return TaskGraph(slots, *parts, "job"), found.kinds


def _pairs(ranks: list[ChakraRank]) -> dict[str, set[int]]:
    """Return the ranks of each process group that has just two."""
    members: dict[str, set[int]] = defaultdict(set)
    for rank in ranks:
        for node in rank.kept.values():
            if "pg_name" in node.attributes:
                members[str(node.attributes["pg_name"])].add(rank.number)
    return {name: own for name, own in members.items() if len(own) == 2}


def _all_reduce_bytes(kind: int, size: int, ranks: int) -> int:
    """Return the bytes of a ring all-reduce that moves as much over each link as a collective of another kind."""
    if kind in (Collective.REDUCE_SCATTER, Collective.REDUCE_SCATTER_BLOCK, Collective.SCATTER, Collective.ALL_TO_ALL):
        return ceil_div(size, 2)
    if kind in (Collective.ALL_GATHER, Collective.GATHER):
        return ceil_div(size * ranks, 2)
    if kind in (Collective.BROADCAST, Collective.REDUCE):
        return ceil_div(size * ranks, 2 * (ranks - 1))
    return 0 if kind == Collective.BARRIER else size


def _transfers_without_work(graph: TaskGraph) -> int:
    """Return how many transfers wait for no block."""
    import networkx as nx

    after = nx.DiGraph((edge.before, edge.after) for edge in graph.edges)
    layers = nx.bfs_layers(after, [block.name for block in graph.blocks if block.name in after])
    reached = set(chain.from_iterable(layers))
    return sum(transfer.name not in reached for transfer in graph.transfers)


def _tell(ranks: list[ChakraRank], files: int, kinds: Counter[int], tell: Tell) -> None:
    if files == 1 and len(ranks) > 1:
        tell(f"{ranks[0].source} stands for each of {len(ranks)} ranks")
    left_out = sum((rank.left_out for rank in ranks[:files]), Counter[str]())
    for kind, number in left_out.items():
        tell(f"left out: {number} {kind}")
    others = Counter[str]()
    for collective, number in kinds.items():
        unnamed = "of no stated kind" if collective == _UNSTATED else "of a kind that is unknown"
        others[_NAMES.get(collective, unnamed)] += number
    del others[_NAMES[Collective.ALL_REDUCE]]
    if others:
        told = ", ".join(f"{number} {name}" for name, number in others.items())
        tell(f"collectives that are timed as ring all-reduces: {told}")
    tell("memory and power are not known, so the job has no memory interval, and its blocks draw no watts")

"""Execution traces of Chakra as the task graph of a job: a slot for each rank.

What a GPU computes is a block. The collectives of the ranks of a process group are one transfer, the first of its kind
of each rank with the first of the others, and so on; a send and its receive are one transfer, too. Whatever the GPU
does not carry out is left out, and what waits for it waits for what it waits for. A control dependency on an operation
of the CPU says who called whom, and is left out, too; one between operations of a GPU is a wait like any other.
Operations of one stream of a GPU follow one another.
A send is over for its rank once it is handed over, so that what waits for it waits for what it waits for: each rank of
a ring may send before it receives.

A transfer among slots is timed as a ring all-reduce (specification: transfer), so another collective has the bytes of
an all-reduce that moves as much over each link. The input of `S` bytes of each of `p` ranks makes a ring move
`2 S (p - 1) / p` for an all-reduce, `S (p - 1) / p` for a reduce-scatter, a scatter or an all-to-all, `S (p - 1)` for
an all-gather or a gather, and `S` for a broadcast or a reduce (Thakur, Rabenseifner and Gropp, *Optimization of
collective communication operations in MPICH*, 2005; *Performance reported by NCCL tests*).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from jigsaw_opt.documents import chakra_trace as chakra
from jigsaw_opt.documents.chakra_trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, ChakraNode, decode_trace
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphTransfer
from jigsaw_opt.text import counted

__all__ = ["read_chakra"]

_MOST_OF_ALL = 1_000_000
"""Nodes of all ranks for which one trace stands."""
_MOST_KEPT = 50_000
"""What waits for what is worked out with a bit for each pair of nodes."""
_LONGEST_NAME = 48
_MOST_SIZE = 2**53 - 1
_METADATA = 1
_NAMES = {
    chakra.ALL_REDUCE: "all-reduce",
    chakra.REDUCE: "reduce",
    chakra.ALL_GATHER: "all-gather",
    chakra.GATHER: "gather",
    chakra.SCATTER: "scatter",
    chakra.BROADCAST: "broadcast",
    chakra.ALL_TO_ALL: "all-to-all",
    chakra.REDUCE_SCATTER: "reduce-scatter",
    chakra.REDUCE_SCATTER_BLOCK: "reduce-scatter",
    chakra.BARRIER: "barrier",
}
"""Names of the kinds of collectives that are known."""
_UNSTATED = -1
"""The kind of a collective that states none."""
_KINDS = {
    "is_cpu_op": ("true or false", (bool, int)),
    "stream": ("an integer", (int,)),
    "tid": ("an integer", (int,)),
    "pg_name": ("a text", (str, int)),
    **dict.fromkeys(("comm_type", "comm_src", "comm_dst", "comm_tag"), ("an integer", (int,))),
}
"""What the attributes that say what belongs together have to be; of an operation of the CPU only the first is read."""
_RANK = re.compile(r"\.([0-9]{1,9})\.et(\.gz)?$")


def read_chakra(
    traces: Mapping[str, bytes], gpu_type: str, workers: int = 1, tell: Callable[[str], None] | None = None
) -> TaskGraph:
    """Read the traces of all ranks of a job, or one that stands for every rank.

    Parameters
    ----------
    traces
        The content of each file by its name. Names as in ``job.3.et`` have the rank, or else their order is that of
        the ranks.
    gpu_type
        What the durations were measured on.
    workers
        Number of ranks where there is one trace.
    tell
        Receives sentences about what was left out; None for nobody.

    Returns
    -------
    TaskGraph
        With ``job`` as its barrier: a trace is an iteration.

    Raises
    ------
    InvalidInputError
        With every file and node that is wrong, and transfers of which not all ranks have their part.
    """
    problems: list[Problem] = []
    ranks: list[_Rank] = []
    named = [_RANK.search(name) for name in traces]
    numbered = len(traces) > 1 and all(named)
    for place, (source, data) in enumerate(traces.items()):
        match = named[place]
        number = int(match[1]) if match and numbered else place
        try:
            ranks.append(_Rank.of(number, source, decode_trace(data, source)))
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
            raise InvalidInputError([Problem(ranks[0].source, told, code="too-large")])
        ranks = [ranks[0].again(number) for number in range(workers)]
    graph, kinds = _task_graph(ranks, gpu_type)
    if tell is not None:
        _tell(ranks, len(traces), kinds, tell)
        early = _transfers_without_work(graph)
        if early:
            tell(f"{counted(early, 'transfer')} may start at once: the trace names no computation before")
    return graph


@dataclass(slots=True)
class _Rank:
    """The nodes of a rank that its GPU carries out.

    Parameters
    ----------
    number, source
        Its number, and the name of its file.
    kept
        Nodes that are blocks or parts of transfers, by their place in the file; each waits for others of `after`.
    after
        By node, what it waits for, without what follows from that.
    left_out
        How many nodes and dependencies of what kind are left out.
    """

    number: int
    source: str
    kept: dict[int, ChakraNode]
    after: dict[int, list[int]]
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, number: int, source: str, nodes: list[ChakraNode]) -> _Rank:
        by_number = {node.number: node for node in nodes}
        problems = [
            Problem(f"{source}: node {name}", f"stands there {times} times", code="duplicate-name")
            for name, times in Counter(node.number for node in nodes).items()
            if times > 1
        ]
        problems += [
            Problem(
                f"{source}: node {node.number}", f"waits for node {before}, which is not there", code="unknown-name"
            )
            for node in nodes
            for before in node.after
            if before not in by_number
        ]
        problems += [problem for node in nodes for problem in _wrong_attributes(node, source)]
        if problems:
            raise InvalidInputError(problems)
        waits = {node.number: [*node.after, *_control(node, by_number)] for node in nodes}
        try:
            order = _in_order(by_number, waits)
        except CycleError as error:
            told = " -> ".join(map(str, error.args[1][:8]))
            raise InvalidInputError([Problem(source, f"nodes wait for each other: {told}", code="cycle")]) from error
        last: dict[int, int] = {}
        for node in (by_number[place] for place in order):
            stream = _stream(node)
            if stream is not None:
                waits[node.number] += [last[stream]] if stream in last else []
                last[stream] = node.number
        reasons = {node.number: _why_left_out(node) for node in nodes}
        kept = {node.number: node for node in nodes if reasons[node.number] is None}
        if len(kept) > _MOST_KEPT:
            told = f"has {len(kept)} nodes of a GPU; at most {_MOST_KEPT} are read"
            raise InvalidInputError([Problem(source, told, code="too-large")])
        left_out = Counter(reason for reason in reasons.values() if reason is not None)
        absent = sum(number not in by_number for node in nodes for number in node.control)
        calls = sum(len(node.control) - len(_control(node, by_number)) for node in nodes) - absent
        left_out.update({"control dependencies of the CPU, which say who called whom": calls} if calls else {})
        left_out.update({"control dependencies on nodes that are not there": absent} if absent else {})
        return cls(number, source, kept, _waits(waits, kept, order), left_out)

    def again(self, number: int) -> _Rank:
        """Return the same nodes as another rank."""
        return _Rank(number, self.source, self.kept, self.after, self.left_out)

    def called(self, number: int) -> str:
        """Return the name of a node in the task graph."""
        text = "".join(each if each.isprintable() and each != "/" else "_" for each in self.kept[number].name)
        return f"{self.number}.{number} {text[:_LONGEST_NAME]}".strip()


def _wrong_attributes(node: ChakraNode, source: str) -> Iterator[Problem]:
    """Yield the attributes of a node that are of another kind than what is read of them."""
    for name in ("is_cpu_op",) if _of_cpu(node) else _KINDS:
        told, kinds = _KINDS[name]
        value = node.attributes.get(name)
        if value is not None and type(value) not in kinds:
            message = f"{name} must be {told}; is {value!r:.100}"
            yield Problem(f"{source}: node {node.number}", message, code="wrong-type")


def _control(node: ChakraNode, nodes: Mapping[int, ChakraNode]) -> list[int]:
    """Return the control dependencies that a node waits for: those between operations of a GPU."""
    found = [] if _of_cpu(node) else [number for number in node.control if number in nodes]
    return [number for number in found if not _of_cpu(nodes[number])]


def _of_cpu(node: ChakraNode) -> bool:
    return bool(node.attributes.get("is_cpu_op")) or node.kind == _METADATA


def _stream(node: ChakraNode) -> int | None:
    """Return the stream that an operation of a GPU is on; earlier traces state it as its thread."""
    return None if _of_cpu(node) else node.attributes.get("stream", node.attributes.get("tid"))


def _in_order(nodes: Mapping[int, ChakraNode], waits: Mapping[int, list[int]]) -> list[int]:
    """Return all nodes, each behind those that it waits for; of several, that which began first or has least number.

    So do Chakra's own readers issue them, by their numbers.
    """
    sorter = TopologicalSorter(waits)
    sorter.prepare()
    ready, order = list[tuple[int, int]](), list[int]()
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, (nodes[number].start_us, number))
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
    return order


def _why_left_out(node: ChakraNode) -> str | None:
    """Return as what a node is left out; None where it is kept."""
    if node.attributes.get("is_cpu_op"):
        return "operations of the CPU"
    if node.kind == COMPUTE:
        return None if node.duration_us else "computations without a duration"
    return None if node.kind in (SEND, RECEIVE, COLLECTIVE) else "nodes of metadata or memory"


def _waits(waits: Mapping[int, list[int]], kept: Mapping[int, ChakraNode], order: list[int]) -> dict[int, list[int]]:
    """Return which kept nodes each of them waits for, through those left out and sends, without what follows."""
    places = [number for number in order if number in kept]
    place = {number: k for k, number in enumerate(places)}
    before: dict[int, int] = {}  # by node, a bit for each kept one that ends before it starts
    last: dict[int, int] = {}  # those of them that no other one of them waits for
    after: dict[int, list[int]] = {}
    for number in order:
        asked = 0
        for other in waits[number]:
            over = other not in place or kept[other].kind == SEND  # by its rank, which has handed a message over
            asked |= last[other] if over else 1 << place[other]
        mine, rest, found = 0, asked, []
        while rest:
            top = rest.bit_length() - 1
            found.append(places[top])
            mine |= before[places[top]] | 1 << top
            rest &= ~mine
        last[number] = sum(1 << place[other] for other in found)
        if number in kept:
            before[number], after[number] = mine, found[::-1]
    return after


class _Matching:
    """Blocks of all ranks, and transfers of those nodes that belong together.

    Attributes
    ----------
    blocks, transfers
        Of the task graph.
    names
        By rank and node, the name of its block or transfer.
    kinds
        How many collectives there are of each kind.
    problems
        What is wrong.
    """

    def __init__(self, ranks: list[_Rank], gpu_type: str) -> None:
        self._ranks, self._pairs = ranks, _pairs(ranks)
        self.blocks: list[TaskGraphBlock] = []
        self.transfers: list[TaskGraphTransfer] = []
        self.names: dict[tuple[int, int], str] = {}
        self.kinds: Counter[int] = Counter()
        self.problems: list[Problem] = []
        collectives: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        messages: dict[tuple[int, int, int], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
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

    def _ends(self, rank: _Rank, node: ChakraNode) -> tuple[int, int, int] | None:
        """Return source, target and tag of a message; None where its peer is not known, or it is of another rank."""
        own, other = ("comm_src", "comm_dst") if node.kind == SEND else ("comm_dst", "comm_src")
        peer = node.attributes.get(other, _peer(node, rank.number, self._pairs))
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

    def _add_messages(
        self, source: int, target: int, sent: list[tuple[int, int]], received: list[tuple[int, int]]
    ) -> None:
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

    def _called(self, part: tuple[int, int]) -> str:
        index, number = part
        return self._ranks[index].called(number)

    def _size(self, parts: list[tuple[int, int]], kind: int | None = None) -> int:
        return _size(parts, self._ranks, self.problems, kind)

    def _add(self, transfer: TaskGraphTransfer, parts: Iterable[tuple[int, int]]) -> None:
        self.transfers.append(transfer)
        self.names |= dict.fromkeys(parts, transfer.name)


def _task_graph(ranks: list[_Rank], gpu_type: str) -> tuple[TaskGraph, Counter[int]]:
    """Return the task graph, and how many collectives there are of each kind."""
    found = _Matching(ranks, gpu_type)
    if found.problems:
        raise InvalidInputError(found.problems)
    if not found.blocks:
        raise InvalidInputError([Problem(ranks[0].source, "no GPU computes anything that takes time", code="empty")])
    edges = dict.fromkeys(
        (found.names[index, before], found.names[index, number])
        for index, rank in enumerate(ranks)
        for number, waits in rank.after.items()
        for before in waits
    )
    slots = tuple(Slot(str(rank.number)) for rank in ranks)
    parts = tuple(found.blocks), tuple(found.transfers), tuple(Edge(*pair) for pair in edges)
    return TaskGraph(slots, *parts, "job"), found.kinds


def _pairs(ranks: list[_Rank]) -> dict[str, set[int]]:
    """Return the ranks of each process group that has just two."""
    members: dict[str, set[int]] = defaultdict(set)
    for rank in ranks:
        for node in rank.kept.values():
            if "pg_name" in node.attributes:
                members[str(node.attributes["pg_name"])].add(rank.number)
    return {name: own for name, own in members.items() if len(own) == 2}


def _peer(node: ChakraNode, rank: int, pairs: Mapping[str, set[int]]) -> int | None:
    """Return the other rank of a node's process group; None where there is not just one other."""
    return next(iter(pairs.get(str(node.attributes.get("pg_name")), set()) - {rank}), None)


def _all_reduce_bytes(kind: int, size: int, ranks: int) -> int:
    """Return the bytes of a ring all-reduce that moves as much over each link as a collective of another kind."""
    if kind in (chakra.REDUCE_SCATTER, chakra.REDUCE_SCATTER_BLOCK, chakra.SCATTER, chakra.ALL_TO_ALL):
        return ceil_div(size, 2)
    if kind in (chakra.ALL_GATHER, chakra.GATHER):
        return ceil_div(size * ranks, 2)
    if kind in (chakra.BROADCAST, chakra.REDUCE):
        return ceil_div(size * ranks, 2 * (ranks - 1))
    return 0 if kind == chakra.BARRIER else size


def _size(parts: list[tuple[int, int]], ranks: list[_Rank], problems: list[Problem], kind: int | None = None) -> int:
    """Return the bytes of a transfer, which all of its ranks must state alike; of a collective as an all-reduce."""
    if kind == chakra.BARRIER:
        return 0
    stated = {}
    for index, number in parts:
        node = ranks[index].kept[number]
        value = node.attributes.get("comm_size", node.attributes.get("tensor_size"))
        where = f"{ranks[index].source}: node {number}"
        if type(value) is not int or not 0 <= value <= _MOST_SIZE:
            told = "does not say its bytes, comm_size" if value is None else f"has no possible comm_size: {value!r}"
            problems.append(Problem(where, told, code="missing-field" if value is None else "out-of-range"))
            return 0
        stated[where] = value
    if len(set(stated.values())) > 1:
        told = "ranks state different sizes of one transfer: " + ", ".join(f"{w} {b}" for w, b in stated.items())
        problems.append(Problem(next(iter(stated)), told, code="mismatch"))
    size = max(stated.values())
    if kind is None or problems:
        return size
    moved = _all_reduce_bytes(kind, size, len(parts))
    if moved > _MOST_SIZE:
        told = f"moves as much as an all-reduce of {moved} bytes; at most {_MOST_SIZE} are possible"
        problems.append(Problem(next(iter(stated)), told, code="out-of-range"))
    return moved


def _transfers_without_work(graph: TaskGraph) -> int:
    """Return how many transfers wait for no block."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        after[edge.before].append(edge.after)
    todo, reached = [block.name for block in graph.blocks], set[str]()
    while todo:
        later = [name for name in after[todo.pop()] if name not in reached]
        reached.update(later)
        todo += later
    return sum(transfer.name not in reached for transfer in graph.transfers)


def _tell(ranks: list[_Rank], files: int, kinds: Counter[int], tell: Callable[[str], None]) -> None:
    if files == 1 and len(ranks) > 1:
        tell(f"{ranks[0].source} stands for each of {len(ranks)} ranks")
    left_out = sum((rank.left_out for rank in ranks[:files]), Counter[str]())
    for kind, number in left_out.items():
        tell(f"left out: {number} {kind}")
    others = Counter[str]()
    for collective, number in kinds.items():
        unnamed = "of no stated kind" if collective == _UNSTATED else "of a kind that is unknown"
        others[_NAMES.get(collective, unnamed)] += number
    del others[_NAMES[chakra.ALL_REDUCE]]
    if others:
        told = ", ".join(f"{number} {name}" for name, number in others.items())
        tell(f"collectives that are timed as ring all-reduces: {told}")
    tell("memory is not known, so the job has none")

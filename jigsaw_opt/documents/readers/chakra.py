"""Execution traces of Chakra as the task graph of a job: a slot for each rank.

What a GPU computes is a block. The collectives of the ranks of a process group are one transfer, the first of its kind
of each rank with the first of the others, and so on; a send and its receive are one transfer, too. Whatever the GPU
does not carry out is left out, and what waits for it waits for what it waits for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from jigsaw_opt.documents.chakra_trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, ChakraNode, decode_trace
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphTransfer
from jigsaw_opt.text import counted

__all__ = ["read_chakra"]

_MOST_KEPT = 50_000
"""What waits for what is worked out with a bit for each pair of nodes."""
_LONGEST_NAME = 48
_MOST_SIZE = 2**53 - 1
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
    if problems:
        raise InvalidInputError(problems)
    ranks.sort(key=lambda rank: rank.number)
    if len(ranks) == 1:
        ranks = [ranks[0].again(number) for number in range(workers)]
    graph = _task_graph(ranks, gpu_type)
    if tell is not None:
        _tell(ranks, len(traces), tell)
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
        How many nodes of what kind are left out.
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
        if problems:
            raise InvalidInputError(problems)
        try:
            order = list(TopologicalSorter({node.number: node.after for node in nodes}).static_order())
        except CycleError as error:
            told = " -> ".join(map(str, error.args[1][:8]))
            raise InvalidInputError([Problem(source, f"nodes wait for each other: {told}", code="cycle")]) from error
        reasons = {node.number: _why_left_out(node) for node in nodes}
        kept = {node.number: node for node in nodes if reasons[node.number] is None}
        if len(kept) > _MOST_KEPT:
            told = f"has {len(kept)} nodes of a GPU; at most {_MOST_KEPT} are read"
            raise InvalidInputError([Problem(source, told, code="too-large")])
        left_out = Counter(reason for reason in reasons.values() if reason is not None)
        return cls(number, source, kept, _waits(by_number, kept, order), left_out)

    def again(self, number: int) -> _Rank:
        """Return the same nodes as another rank."""
        return _Rank(number, self.source, self.kept, self.after, self.left_out)

    def called(self, number: int) -> str:
        """Return the name of a node in the task graph."""
        text = "".join(each if each.isprintable() and each != "/" else "_" for each in self.kept[number].name)
        return f"{self.number}.{number} {text[:_LONGEST_NAME]}".strip()


def _why_left_out(node: ChakraNode) -> str | None:
    """Return as what a node is left out; None where it is kept."""
    if node.attributes.get("is_cpu_op"):
        return "operations of the CPU"
    if node.kind == COMPUTE:
        return None if node.duration_us else "computations without a duration"
    return None if node.kind in (SEND, RECEIVE, COLLECTIVE) else "nodes of metadata or memory"


def _waits(nodes: Mapping[int, ChakraNode], kept: Mapping[int, ChakraNode], order: list[int]) -> dict[int, list[int]]:
    """Return which kept nodes each of them waits for, through those left out, without what follows from others."""
    places = [number for number in order if number in kept]
    place = {number: k for k, number in enumerate(places)}
    before: dict[int, int] = {}  # by node, a bit for each kept one that ends before it starts
    last: dict[int, int] = {}  # those of them that no other one of them waits for
    after: dict[int, list[int]] = {}
    for number in order:
        asked = 0
        for other in nodes[number].after:
            asked |= 1 << place[other] if other in place else last[other]
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


def _task_graph(ranks: list[_Rank], gpu_type: str) -> TaskGraph:
    blocks, transfers, problems = [], [], list[Problem]()
    name_of: dict[tuple[int, int], str] = {}
    collectives: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    messages: dict[tuple[int, int, int], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for index, rank in enumerate(ranks):
        for number, node in rank.kept.items():
            if node.kind == COMPUTE:
                name_of[index, number] = rank.called(number)
                blocks.append(TaskGraphBlock(rank.called(number), (str(rank.number),), {gpu_type: node.duration_us}))
            elif node.kind == COLLECTIVE:
                alike = str(node.attributes.get("pg_name", "")), _whole(node, "comm_type")
                collectives[alike][index].append(number)
            else:
                own, other = ("comm_src", "comm_dst") if node.kind == SEND else ("comm_dst", "comm_src")
                if other not in node.attributes:
                    told = f"does not say its {other}"
                    problems.append(Problem(f"{rank.source}: node {number}", told, code="missing-field"))
                    continue
                ends = {own: node.attributes.get(own, rank.number), other: node.attributes[other]}
                key = _number(ends["comm_src"]), _number(ends["comm_dst"]), _whole(node, "comm_tag")
                messages[key][node.kind].append((index, number))
    for (group, kind), parts in collectives.items():
        if len(parts) < 2 or len({len(own) for own in parts.values()}) > 1:
            told = ", ".join(f"{len(own)} of rank {ranks[index].number}" for index, own in parts.items())
            where = ranks[min(parts)].source
            named = f" of group {group!r}" if group else ""
            told = f"collectives of kind {kind}{named} do not belong together: {told}"
            problems.append(Problem(where, told, "give the traces of all ranks", code="mismatch"))
            continue
        for together in zip(*parts.values(), strict=True):
            each = list(zip(parts, together, strict=True))
            size = _size(each, ranks, problems)
            first, number = each[0]
            name = ranks[first].called(number)
            transfers.append(TaskGraphTransfer(name, size, among=tuple(str(ranks[index].number) for index, _ in each)))
            name_of |= dict.fromkeys(each, name)
    for (source, target, _), kinds in messages.items():
        sent, received = kinds[SEND], kinds[RECEIVE]
        if len(sent) != len(received) or source == target:
            index, number = (sent or received)[0]
            told = (
                f"rank {source} sends {counted(len(sent), 'message')} to rank {target}, which receives {len(received)}"
            )
            problems.append(Problem(f"{ranks[index].source}: node {number}", told, code="mismatch"))
            continue
        for pair in zip(sent, received, strict=True):
            size = _size(list(pair), ranks, problems)
            name = ranks[pair[0][0]].called(pair[0][1])
            transfers.append(TaskGraphTransfer(name, size, source=str(source), target=str(target)))
            name_of |= dict.fromkeys(pair, name)
    if problems:
        raise InvalidInputError(problems)
    if not blocks:
        raise InvalidInputError([Problem(ranks[0].source, "no GPU computes anything that takes time", code="empty")])
    edges = dict.fromkeys(
        (name_of[index, before], name_of[index, number])
        for index, rank in enumerate(ranks)
        for number, waits in rank.after.items()
        for before in waits
    )
    slots = tuple(Slot(str(rank.number)) for rank in ranks)
    return TaskGraph(slots, tuple(blocks), tuple(transfers), tuple(Edge(*pair) for pair in edges), "job")


def _size(parts: list[tuple[int, int]], ranks: list[_Rank], problems: list[Problem]) -> int:
    """Return the bytes of a transfer, which all of its ranks must state alike."""
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
    return max(stated.values())


def _whole(node: ChakraNode, name: str) -> int:
    return _number(node.attributes.get(name, 0))


def _number(value: object) -> int:
    return value if type(value) is int else -1


def _tell(ranks: list[_Rank], files: int, tell: Callable[[str], None]) -> None:
    if files == 1 and len(ranks) > 1:
        tell(f"{ranks[0].source} stands for each of {len(ranks)} ranks")
    left_out = sum((rank.left_out for rank in ranks[:files]), Counter[str]())
    for kind, number in left_out.items():
        tell(f"left out: {number} {kind}")
    tell("memory is not known, so the job has none")

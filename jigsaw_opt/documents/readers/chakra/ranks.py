"""What the GPU of one rank carries out in an execution trace of Chakra, and what waits for what.

Whatever the GPU does not carry out is left out, and what waits for it waits for what it waits for. A control dependency
on an operation of the CPU says who called whom, and is left out, too; one between operations of a GPU is a wait like
any other. Operations of one stream of a GPU follow one another. A send is over for its rank once it is handed over, so
that what waits for it waits for what it waits for: each rank of a ring may send before it receives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from jigsaw_opt.documents.readers.chakra.trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, ChakraNode
from jigsaw_opt.errors import InvalidInputError, Problem

_MOST_KEPT = 50_000
"""What waits for what is worked out with a bit for each pair of nodes."""
_LONGEST_NAME = 48
_METADATA = 1
_KINDS = {
    "is_cpu_op": ("true or false", (bool, int)),
    "stream": ("an integer", (int,)),
    "tid": ("an integer", (int,)),
    "pg_name": ("a text", (str, int)),
    **dict.fromkeys(("comm_type", "comm_src", "comm_dst", "comm_tag"), ("an integer", (int,))),
}
"""What the attributes that say what belongs together have to be; of an operation of the CPU only the first is read."""


@dataclass(slots=True)
class ChakraRank:
    """The nodes of a rank that its GPU carries out.

    `number, source`: its number, and the name of its file. `kept`: nodes that are blocks or parts of transfers, by
    their place in the file; each waits for others of `after`. `after`: by node, what it waits for, without what follows
    from that. `left_out`: how many nodes and dependencies of what kind are left out.
    """

    number: int
    source: str
    kept: dict[int, ChakraNode]
    after: dict[int, list[int]]
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, number: int, source: str, nodes: list[ChakraNode]) -> ChakraRank:
        """Return what is kept of the nodes of a trace."""
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

    def again(self, number: int) -> ChakraRank:
        """Return the same nodes as another rank."""
        return ChakraRank(number, self.source, self.kept, self.after, self.left_out)

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

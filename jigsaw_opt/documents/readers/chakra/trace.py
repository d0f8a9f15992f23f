"""Execution traces of Chakra (mlcommons/chakra, ``et_def.proto``): the nodes of one rank, from bytes and to bytes.

A file is a sequence of protocol-buffer messages, each behind its length: one of metadata, then one a node.
The messages are stated here by the numbers of their fields. Fields that are of no use to schedules are left out, and
protocol buffers skip them.

What the GPU of a rank does not carry out is left out, and what waits for it waits for what it waits for. A control
dependency on an operation of the CPU says who called whom, and is left out, too; one between operations of a GPU is a
wait like any other. Operations of one stream of a GPU follow one another. A send is over for its rank once it is handed
over, so that what waits for it waits for what it waits for: each rank of a ring may send before it receives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from io import BytesIO
from typing import Any

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.errors import InvalidInputError, MissingEngineError, Problem, wrong_input

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of the nodes that a schedule has; others are metadata, and loads and stores of memory."""
_SCALARS: tuple[str, ...] = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64")
_SCALARS += ("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes")
"""Kinds of a value that an attribute may have; the field of each is two behind the field before, from 3."""


class Collective(IntEnum):
    """Kinds of a collective, in its attribute ``comm_type``."""

    ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = range(8)
    REDUCE_SCATTER_BLOCK, BARRIER = 8, 9

    @property
    def told(self) -> str:
        """What messages call it."""
        return self.name.lower().replace("_", "-").removesuffix("-block")


@dataclass(frozen=True, slots=True)
class ChakraNode:
    """An operation of one rank.

    `number`: its ``id``, unique in the trace. `kind`: its type; the constants of this module are some. `after,
    control`: numbers of the nodes that it waits for: its ``data_deps``, and its ``ctrl_deps``, which in traces of
    PyTorch are the calls that it was made by. `duration_us, start_us`: in microseconds; 0 where the trace says nothing.
    `attributes`: those with one value, by name. Lists are left out.
    """

    number: int
    name: str
    kind: int
    after: tuple[int, ...] = ()
    duration_us: int = 0
    start_us: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[int, ...] = ()


def decode_trace(data: bytes, source: str = "trace.et") -> list[ChakraNode]:
    """Read the trace of a rank; as Chakra's own tools, also one that is packed by gzip."""
    metadata, node, _ = _messages()
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    found: list[ChakraNode] = []
    stream = BytesIO(unpacked(data, source, is_text=False))
    try:
        parse_length_prefixed(metadata, stream)
        while (message := parse_length_prefixed(node, stream)) is not None:
            found.append(_decoded(message))
    except (ValueError, DecodeError) as error:
        told = f"is no execution trace of Chakra, or damaged behind {len(found)} nodes: {error}"
        raise wrong_input(source, told, code="damaged") from error
    if not found:
        raise wrong_input(source, "has no node", code="empty")
    return found


def encode_trace(nodes: Sequence[ChakraNode]) -> bytes:
    """Return the trace of a rank; integers become the kind of attribute that Chakra's readers expect of each."""
    metadata, node, attribute = _messages()
    from google.protobuf.proto import serialize_length_prefixed

    stream = BytesIO()
    serialize_length_prefixed(metadata(version="1.0.0"), stream)
    for each in nodes:
        own = [attribute(name=name, **{_KINDS[name]: value}) for name, value in each.attributes.items()]
        times = {"start_time_micros": each.start_us, "duration_micros": each.duration_us}
        waits = {"data_deps": each.after, "ctrl_deps": each.control}
        message = node(id=each.number, name=each.name, type=each.kind, attr=own, **waits, **times)
        serialize_length_prefixed(message, stream)
    return stream.getvalue()


_KINDS = {
    "is_cpu_op": "bool_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
    "stream": "int64_val",
}
"""The kinds of the attributes that are written, as Chakra's own reader takes them."""


def _decoded(message: Any) -> ChakraNode:
    values = ((each.name, each.WhichOneof("value"), each) for each in message.attr)
    attributes = {name: getattr(each, kind) for name, kind, each in values if kind is not None}
    times = message.duration_micros, message.start_time_micros
    waits, control = tuple(message.data_deps), tuple(message.ctrl_deps)
    return ChakraNode(message.id, message.name, message.type, waits, *times, attributes, control)


@cache
def _messages() -> tuple[Any, Any, Any]:
    """Return the classes of metadata, nodes and attributes, which have a pool of their own beside Chakra's package."""
    try:
        from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass
    except ModuleNotFoundError as error:
        raise MissingEngineError("protobuf", "jigsaw-opt[chakra]") from error

    file = FileDescriptorProto(name="chakra_trace.proto", package="ChakraProtoMsg", syntax="proto3")

    def add(message: str, **fields: tuple[int, str]) -> Any:
        """Add a message; a star stands behind the kind of a repeated field."""
        made = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            label = Field.LABEL_REPEATED if kind.endswith("*") else Field.LABEL_OPTIONAL
            added = made.field.add(name=name, number=number, label=label)
            if kind == "attribute*":
                added.type, added.type_name = Field.TYPE_MESSAGE, ".ChakraProtoMsg.AttributeProto"
            else:
                added.type = getattr(Field, f"TYPE_{kind.rstrip('*').upper()}")
        return made

    scalars = {f"{kind}_val": (3 + 2 * number, kind) for number, kind in enumerate(_SCALARS)}
    attribute = add("AttributeProto", name=(1, "string"), **scalars)
    attribute.oneof_decl.add(name="value")
    for scalar in attribute.field[1:]:
        scalar.oneof_index = 0
    add("GlobalMetadata", version=(1, "string"), attr=(2, "attribute*"))
    add(
        "Node",
        id=(1, "uint64"),
        name=(2, "string"),
        type=(3, "int32"),  # an enumeration, which is written in the same way
        ctrl_deps=(4, "uint64*"),
        data_deps=(5, "uint64*"),
        start_time_micros=(6, "uint64"),
        duration_micros=(7, "uint64"),
        attr=(10, "attribute*"),
    )
    pool = DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    metadata, node, attributes = (GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{n}")) for n in names)
    return metadata, node, attributes


_MOST_KEPT = 50_000
"""What waits for what is worked out with a bit for each pair of nodes."""
_LONGEST_NAME = 48
_METADATA = 1
_ATTRIBUTES = {
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
            raise wrong_input(source, f"nodes wait for each other: {told}", code="cycle") from error
        last: dict[int, int] = {}
        for node in (by_number[place] for place in order):
            # Earlier traces state the stream of an operation as its thread.
            stream = None if _of_cpu(node) else node.attributes.get("stream", node.attributes.get("tid"))
            if stream is not None:
                waits[node.number] += [last[stream]] if stream in last else []
                last[stream] = node.number
        reasons = {node.number: _why_left_out(node) for node in nodes}
        kept = {node.number: node for node in nodes if reasons[node.number] is None}
        if len(kept) > _MOST_KEPT:
            told = f"has {len(kept)} nodes of a GPU; at most {_MOST_KEPT} are read"
            raise wrong_input(source, told, code="too-large")
        left_out = Counter(reason for reason in reasons.values() if reason is not None)
        absent = sum(number not in by_number for node in nodes for number in node.control)
        calls = sum(len(node.control) - len(_control(node, by_number)) for node in nodes) - absent
        left_out.update({"control dependencies of the CPU, which say who called whom": calls} if calls else {})
        left_out.update({"control dependencies on nodes that are not there": absent} if absent else {})
        return cls(number, source, kept, _waits(waits, kept, order), left_out)

    def called(self, number: int) -> str:
        """Return the name of a node in the task graph."""
        text = "".join(each if each.isprintable() and each != "/" else "_" for each in self.kept[number].name)
        return f"{self.number}.{number} {text[:_LONGEST_NAME]}".strip()


def _wrong_attributes(node: ChakraNode, source: str) -> Iterator[Problem]:
    """Yield the attributes of a node that are of another kind than what is read of them."""
    for name in ("is_cpu_op",) if _of_cpu(node) else _ATTRIBUTES:
        told, kinds = _ATTRIBUTES[name]
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

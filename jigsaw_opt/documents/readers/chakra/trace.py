"""Execution traces of Chakra (mlcommons/chakra, ``et_def.proto``): the nodes of one rank, from bytes and to bytes.

A file is a sequence of protocol-buffer messages, each behind its length: one of metadata, then one a node.
The messages are stated here by the numbers of their fields. Fields that are of no use to schedules are left out, and
protocol buffers skip them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.errors import InvalidInputError, MissingEngineError, Problem

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of the nodes that a schedule has; others are metadata, and loads and stores of memory."""
ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = range(8)
REDUCE_SCATTER_BLOCK, BARRIER = 8, 9
"""Kinds of a collective, in its attribute ``comm_type``."""
_SCALARS: tuple[str, ...] = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64")
_SCALARS += ("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes")
"""Kinds of a value that an attribute may have; the field of each is two behind the field before, from 3."""


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

    found: list[ChakraNode] = []
    try:
        for number, message in enumerate(_framed(unpacked(data, source, is_text=False))):
            if number:
                found.append(_decoded(node.FromString(message)))
            else:
                metadata.FromString(message)
    except (ValueError, DecodeError) as error:
        told = f"is no execution trace of Chakra, or damaged behind {len(found)} nodes: {error}"
        raise InvalidInputError([Problem(source, told, code="damaged")]) from error
    if not found:
        raise InvalidInputError([Problem(source, "has no node", code="empty")])
    return found


def encode_trace(nodes: Sequence[ChakraNode]) -> bytes:
    """Return the trace of a rank; integers become the kind of attribute that Chakra's readers expect of each."""
    metadata, node, attribute = _messages()
    messages = [metadata(version="1.0.0")]
    for each in nodes:
        own = [attribute(name=name, **{_KINDS[name]: value}) for name, value in each.attributes.items()]
        times = {"start_time_micros": each.start_us, "duration_micros": each.duration_us}
        waits = {"data_deps": each.after, "ctrl_deps": each.control}
        messages.append(node(id=each.number, name=each.name, type=each.kind, attr=own, **waits, **times))
    texts = [message.SerializeToString() for message in messages]
    return b"".join(_length(len(text)) + text for text in texts)


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


def _framed(data: bytes) -> Iterator[bytes]:
    """Yield the messages, each of which stands behind its length in groups of seven bits, lowest first."""
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            if at == len(data) or shift > 63:
                raise ValueError("it ends within the length of a message")
            size |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        if size > len(data) - at:
            raise ValueError("it ends within a message")
        yield data[at : at + size]
        at += size


def _length(size: int) -> bytes:
    found = bytearray()
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return bytes([*found, size])


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

    def add(message: str, *fields: tuple[str, int, str, bool]) -> Any:
        made = file.message_type.add(name=message)
        for name, number, kind, many in fields:
            label = Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL
            if kind == "attribute":
                own = {"type": Field.TYPE_MESSAGE, "type_name": ".ChakraProtoMsg.AttributeProto"}
            else:
                own = {"type": getattr(Field, f"TYPE_{kind.upper()}")}
            made.field.add(name=name, number=number, label=label, **own)
        return made

    attribute = add("AttributeProto", ("name", 1, "string", False))
    attribute.oneof_decl.add(name="value")
    for number, kind in enumerate(_SCALARS):
        of = getattr(Field, f"TYPE_{kind.upper()}")
        attribute.field.add(name=f"{kind}_val", number=3 + 2 * number, type=of, label=1, oneof_index=0)
    add("GlobalMetadata", ("version", 1, "string", False), ("attr", 2, "attribute", True))
    add(
        "Node",
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),  # an enumeration, which is written in the same way
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, "attribute", True),
    )
    pool = DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    metadata, node, attributes = (GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{n}")) for n in names)
    return metadata, node, attributes

"""Workloads of "Piper: multidimensional planner for DNN parallelization" (Tarnawski et al., NeurIPS'21).

A JSON document: `maxDevices` accelerators of `maxMemoryPerDevice` bytes, `bandwidth` in bytes per unit of time,
`mbsInBatch`, `nodes` and `edges` with `communicationCost` in bytes. A node has `TMPCs`: by degree of tensor
parallelism, ways to run it with `timePerSample`, `parameterSize`, `memoryUsageA` (for each micro-batch in flight),
`memoryUsageB` (always), and `syncTimeFw` and `syncTimeBw`, bytes by the node that an edge comes from or goes to. A
document does not say what the unit of time is.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.references import check_references
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.structure import compiled

__all__ = ["NodeOption", "PiperEdge", "PiperGraph", "PiperNode", "read_piper"]

_NUMBER = {"type": "number", "minimum": 0, "maximum": 1e30}
_POSITIVE = {"type": "number", "minimum": 1e-9, "maximum": 1e30}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 2**53 - 1}
_INTEGER = {"type": "integer", "minimum": -(2**53), "maximum": 2**53 - 1}
_DEGREE = r"^[1-9][0-9]{0,6}$"
_BYTES_BY_NODE = {"type": "object", "additionalProperties": _NUMBER}
_NUMBERS = ("timePerSample", "parameterSize", "memoryUsageA", "memoryUsageB")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["maxDevices", "maxMemoryPerDevice", "bandwidth", "mbsInBatch", "nodes", "edges"],
    "properties": {
        "maxDevices": _COUNT,
        "maxMemoryPerDevice": _POSITIVE,
        "bandwidth": _POSITIVE,
        "mbsInBatch": _COUNT,
        "nodes": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}},
        "edges": {"type": "array", "items": {"$ref": "#/$defs/edge"}},
    },
    "$defs": {
        "node": {
            "type": "object",
            "required": ["id", "TMPCs"],
            "properties": {
                "id": _INTEGER,
                "name": {"type": "string"},
                "TMPCs": {
                    "type": "object",
                    "propertyNames": {"type": "string", "pattern": _DEGREE, "description": 'a degree, as in "4"'},
                    "additionalProperties": {"type": "array", "items": {"$ref": "#/$defs/option"}},
                },
            },
        },
        "option": {
            "type": "object",
            "required": ["id", *_NUMBERS, "syncTimeFw", "syncTimeBw"],
            "properties": {
                "id": {"type": "string", "minLength": 1},
                **dict.fromkeys(_NUMBERS, _NUMBER),
                "syncTimeFw": _BYTES_BY_NODE,
                "syncTimeBw": _BYTES_BY_NODE,
            },
        },
        "edge": {
            "type": "object",
            "required": ["sourceId", "destId", "communicationCost"],
            "properties": {"sourceId": _INTEGER, "destId": _INTEGER, "communicationCost": _NUMBER},
        },
    },
}


@dataclass(frozen=True, slots=True)
class NodeOption:
    """A way to run a node on the devices of one tensor-parallel group.

    `name`: such as ``vanilla`` or ``activation recomp``. `time`: time of a micro-batch, forward and backward, in the
    unit of the document. `parameter_bytes`: bytes of parameters on each device that copies exchange. `flight_bytes,
    static_bytes`: memory of each device for each micro-batch in flight, and always. `received_bytes, sent_bytes`: by
    place of the node at the other end of an edge that comes from outside the stage or goes there, what the devices
    exchange besides.
    """

    name: str
    time: float
    parameter_bytes: float
    flight_bytes: float
    static_bytes: float
    received_bytes: dict[int, float]
    sent_bytes: dict[int, float]


@dataclass(frozen=True, slots=True)
class PiperNode:
    """A node, and by degree of tensor parallelism the ways to run it."""

    number: int
    options: dict[int, tuple[NodeOption, ...]]


@dataclass(frozen=True, slots=True)
class PiperEdge:
    """Bytes from one node to another, by their places."""

    source: int
    target: int
    bytes: float


@dataclass(frozen=True, slots=True)
class PiperGraph:
    """Nodes and edges, and the devices.

    `bandwidth`: bytes of each device per unit of time. `micro_batches`: number of micro-batches of a batch.
    """

    nodes: tuple[PiperNode, ...]
    edges: tuple[PiperEdge, ...]
    devices: int
    memory: float
    bandwidth: float
    micro_batches: int


def read_piper(data: bytes | str, *, source: str = "$") -> PiperGraph:
    """Read a workload."""
    tree = parsed(data, source, _check)
    place = {node["id"]: at for at, node in enumerate(tree["nodes"])}
    nodes = tuple(
        PiperNode(
            node["id"],
            {
                int(degree): tuple(_option(option, place) for option in options)
                for degree, options in node["TMPCs"].items()
            },
        )
        for node in tree["nodes"]
    )
    edges = tuple(
        PiperEdge(place[edge["sourceId"]], place[edge["destId"]], edge["communicationCost"]) for edge in tree["edges"]
    )
    return PiperGraph(
        nodes, edges, tree["maxDevices"], tree["maxMemoryPerDevice"], tree["bandwidth"], tree["mbsInBatch"]
    )


def _option(tree: dict[str, Any], place: dict[int, int]) -> NodeOption:
    received, sent = (
        {place[int(number)]: amount for number, amount in tree[key].items()} for key in ("syncTimeFw", "syncTimeBw")
    )
    time, parameters, flight, static = (tree[key] for key in _NUMBERS)
    return NodeOption(tree["id"], time, parameters, flight, static, received, sent)


def _check(tree: dict[str, Any], report: Report) -> None:
    compiled(_SCHEMA, _SCHEMA)(tree, "$", report)
    if report.problems:
        return
    known = check_references(tree, report)
    before: dict[int, set[int]] = {number: set() for number in known}
    after: dict[int, set[int]] = {number: set() for number in known}
    for at, edge in enumerate(tree["edges"]):
        source, target = edge["sourceId"], edge["destId"]
        if {source, target} <= known:
            if source in before[target]:
                report.add((("$", "edges"), at), f"duplicate edge from {source} to {target}", code="duplicate-name")
            before[target].add(source)
            after[source].add(target)
    if report.problems:
        return
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        report.add(("$", "edges"), f"there is a cycle: {', '.join(map(str, error.args[1]))}", code="cycle")
    for at, node in enumerate(tree["nodes"]):
        ends = (before[node["id"]], after[node["id"]])
        for degree, options in node["TMPCs"].items():
            _check_options(options, ends, (((("$", "nodes"), at), "TMPCs"), degree), report)


def _check_options(options: list[Any], ends: tuple[set[int], set[int]], place: Place, report: Report) -> None:
    """Check that names are different, and that bytes stand for every edge of the node and for no other."""
    names: set[str] = set()
    for at, option in enumerate(options):
        if option["id"] in names:
            report.add(((place, at), "id"), f"duplicate option {option['id']}", code="duplicate-name")
        names.add(option["id"])
        for key, others in zip(("syncTimeFw", "syncTimeBw"), ends, strict=True):
            wanted = set(map(str, others))
            for number in sorted(wanted ^ set(option[key])):
                what = "has no bytes here" if number in wanted else "does not exist"
                report.add(((place, at), key), f"the edge with node {number} {what}", code="mismatch")

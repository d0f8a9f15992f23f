"""Workloads of "Efficient algorithms for device placement of DNN graph operators" (Tarnawski et al., NeurIPS'20).

A JSON document: `maxFPGAs` accelerators of `maxSizePerFPGA` bytes, `maxCPUs`, `nodes` with `cpuLatency` and
`fpgaLatency` in milliseconds, `size`, `isBackwardNode`, `supportedOnFpga` and `colorClass` (nodes of one class sit
together), and `edges` with the `cost` in milliseconds of moving the output of `sourceId`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.references import check_references
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import compiled

__all__ = ["Operator", "OperatorGraph", "read_dnn_partitioning"]

_NUMBER = {"type": "number", "minimum": 0}
_INTEGER = {"type": "integer", "minimum": -(2**53), "maximum": 2**53 - 1}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_FLAG = {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 1}]}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["maxSizePerFPGA", "maxFPGAs", "maxCPUs", "nodes", "edges"],
    "properties": {
        "maxSizePerFPGA": _NUMBER,
        "maxFPGAs": _COUNT,
        "maxCPUs": _COUNT,
        "nodes": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}},
        "edges": {"type": "array", "items": {"$ref": "#/$defs/edge"}},
    },
    "$defs": {
        "node": {
            "type": "object",
            "required": ["id", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "size"],
            "properties": {
                "id": _INTEGER,
                "name": {"type": "string"},
                "supportedOnFpga": _FLAG,
                "cpuLatency": _NUMBER,
                "fpgaLatency": _NUMBER,
                "isBackwardNode": _FLAG,
                "colorClass": _INTEGER,
                "size": _NUMBER,
            },
        },
        "edge": {
            "type": "object",
            "required": ["sourceId", "destId", "cost"],
            "properties": {"sourceId": _INTEGER, "destId": _INTEGER, "cost": _NUMBER},
        },
    },
}


@dataclass(frozen=True, slots=True)
class Operator:
    """A node; times in nanoseconds.

    `accelerator_ns, cpu_ns`: duration there, in nanoseconds; `accelerator_ns` is None where no accelerator runs it.
    `bytes`: what it takes of an accelerator's memory. `backward`: whether it belongs to the backward pass. `group`:
    nodes of one group sit together. `output_ns`: time of moving its output between an accelerator and the memory of the
    host, in nanoseconds.
    """

    number: int
    accelerator_ns: int | None
    cpu_ns: int
    bytes: int
    backward: bool
    group: int
    output_ns: int


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """Nodes, edges by their places among these, and the devices."""

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    accelerators: int
    cpus: int
    memory: int


def read_dnn_partitioning(data: bytes | str, *, source: str = "$") -> OperatorGraph:
    """Read a workload."""
    tree = parsed(data, source, _check)
    place = {node["id"]: at for at, node in enumerate(tree["nodes"])}
    sent = {node["id"]: 0 for node in tree["nodes"]}
    for edge in tree["edges"]:
        sent[edge["sourceId"]] = max(sent[edge["sourceId"]], _ns(edge["cost"]))
    classes: dict[object, int] = {}
    operators = []
    for node in tree["nodes"]:
        group = classes.setdefault(node.get("colorClass", ("alone", node["id"])), len(classes))
        supported = _ns(node["fpgaLatency"]) if node["supportedOnFpga"] else None
        backward = bool(node["isBackwardNode"])
        size = round(node["size"])
        operators.append(
            Operator(node["id"], supported, _ns(node["cpuLatency"]), size, backward, group, sent[node["id"]])
        )
    edges = tuple((place[edge["sourceId"]], place[edge["destId"]]) for edge in tree["edges"])
    return OperatorGraph(tuple(operators), edges, tree["maxFPGAs"], tree["maxCPUs"], int(tree["maxSizePerFPGA"]))


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)


def _check(tree: dict[str, Any], report: Report) -> None:
    compiled(_SCHEMA, _SCHEMA)(tree, "$", report)
    if report.problems:
        return
    check_references(tree, report)
    if not tree["maxFPGAs"] + tree["maxCPUs"]:
        report.add("$", "there is no device", code="empty")

"""Costs and graphs of operators of other projects: what is read, and every contradiction at its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt.documents.readers.burst_costs import LayerOption, read_burst_costs
from jigsaw_opt.documents.readers.dnn_partitioning import Operator, read_dnn_partitioning
from jigsaw_opt.documents.readers.piper import read_piper
from tests.refusals import refuses


def config(gpus: int) -> dict[str, Any]:
    return {"gpus": gpus, "gpu_us": 9 / gpus, "fwd_us": 3 / gpus, "bwd_us": 6 / gpus, "sync_us": gpus - 1}


def costs() -> dict[str, Any]:
    """Two layers, the first on 1 or 2 GPUs, the second on 1, 2 or 4."""
    return {
        "gpus": 4,
        "layers": [
            {"id": 0, "name": "conv", "single_gpu_us": 9, "configs": [config(1), config(2)]},
            {
                "id": 1,
                "name": "linear",
                "single_gpu_us": 5.5,
                "configs": [config(1), config(2), config(4)],
                "xfer_us": [[0, 1, 2], [3, 4, 5]],
            },
        ],
    }


def node(number: int, **fields: Any) -> dict[str, Any]:
    times = {"cpuLatency": 2, "fpgaLatency": 0.5, "supportedOnFpga": True}
    return {"id": number, **times, "isBackwardNode": False, "size": 100.4, **fields}


def operators() -> dict[str, Any]:
    """Three operators, of which two have one colour and one runs on CPUs alone."""
    return {
        "maxSizePerFPGA": 1000.9,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [node(7, colorClass=1), node(3, supportedOnFpga=0), node(5, colorClass=1, isBackwardNode=1)],
        "edges": [
            {"sourceId": 7, "destId": 3, "cost": 0.25},
            {"sourceId": 7, "destId": 5, "cost": 1},
            {"sourceId": 3, "destId": 5, "cost": 0},
        ],
    }


def option(name: str, received: dict[str, int], sent: dict[str, int]) -> dict[str, Any]:
    numbers = {"timePerSample": 1, "parameterSize": 2, "memoryUsageA": 3, "memoryUsageB": 4}
    return {"id": name, **numbers, "syncTimeFw": received, "syncTimeBw": sent}


def workload() -> dict[str, Any]:
    """Two nodes and the edge between them."""
    return {
        "maxDevices": 2,
        "maxMemoryPerDevice": 100,
        "bandwidth": 1,
        "mbsInBatch": 1,
        "nodes": [
            {"id": 4, "TMPCs": {"1": [option("plain", {}, {"9": 5})]}},
            {"id": 9, "TMPCs": {"1": [option("plain", {"4": 5}, {})]}},
        ],
        "edges": [{"sourceId": 4, "destId": 9, "communicationCost": 8}],
    }


def with_value(tree: dict[str, Any], path: tuple[str | int, ...], value: Any) -> str:
    """Return a document in which one place has another value."""
    *above, last = path
    at: Any = tree
    for step in above:
        at = at[step]
    at[last] = value
    return json.dumps(tree)


def test_costs_are_read_and_limited_to_fewer_gpus() -> None:
    read = read_burst_costs(json.dumps(costs()))
    assert read.single_gpu_us == 14.5
    assert read.layers[0].options == (LayerOption(1, 9, 3, 6, 0), LayerOption(2, 4.5, 1.5, 3, 1))
    limited = read.limited(2)
    assert limited.gpus == 2
    assert [[option.gpus for option in layer.options] for layer in limited.layers] == [[1, 2], [1, 2]]
    assert limited.layers[1].transfer_us == ((0, 1), (3, 4))
    assert read.limited(1).layers[1].transfer_us == ((0,),)
    assert read.limited(8) == read


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("layers", 0, "name"), 3, ["wrong-type $.layers[0].name"]),
        (("layers", 1, "id"), 0, ["wrong-order $.layers[1].id"]),
        (("gpus",), 2, ["out-of-range $.layers[1].configs[2].gpus"]),
        (("layers", 0, "configs", 1, "gpus"), 1, ["duplicate-name $.layers[0].configs[1].gpus"]),
        (("layers", 0, "xfer_us"), [[1, 2]], ["wrong-count $.layers[0].xfer_us"]),
        (("layers", 1, "xfer_us", 1), [3], ["wrong-count $.layers[1].xfer_us[1]"]),
    ],
)
def test_costs_that_contradict_each_other_are_refused(path: tuple[str | int, ...], to: Any, found: list[str]) -> None:
    with refuses(*found):
        read_burst_costs(with_value(costs(), path, to))


def test_operators_are_read_in_nanoseconds() -> None:
    graph = read_dnn_partitioning(json.dumps(operators()))
    assert graph.operators == (
        Operator(7, 500_000, 2_000_000, 100, False, 0, 1_000_000),
        Operator(3, None, 2_000_000, 100, False, 1, 0),
        Operator(5, 500_000, 2_000_000, 100, True, 0, 0),
    )
    assert graph.edges == ((0, 1), (0, 2), (1, 2))


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("nodes", 0, "size"), -1, ["out-of-range $.nodes[0].size"]),
        (
            ("nodes", 1, "id"),
            7,
            ["duplicate-name $.nodes[1].id", "unknown-name $.edges[0].destId", "unknown-name $.edges[2].sourceId"],
        ),
        (("edges", 1, "destId"), 8, ["unknown-name $.edges[1].destId"]),
        (("maxFPGAs",), 0, ["empty $"]),
    ],
)
def test_operators_that_refer_to_nothing_are_refused(path: tuple[str | int, ...], to: Any, found: list[str]) -> None:
    with refuses(*found):
        read_dnn_partitioning(with_value(operators() | {"maxCPUs": 0}, path, to))


@pytest.mark.parametrize(
    ("path", "to", "found"),
    [
        (("edges",), [workload()["edges"][0]] * 2, ["duplicate-name $.edges[1]"]),
        (
            ("nodes", 0, "TMPCs", "1"),
            [option("twice", {}, {"9": 5})] * 2,
            ['duplicate-name $.nodes[0].TMPCs["1"][1].id'],
        ),
        (("nodes", 1, "TMPCs", "1", 0, "syncTimeFw"), {}, ['mismatch $.nodes[1].TMPCs["1"][0].syncTimeFw']),
        (("nodes", 1, "id"), 5, ["unknown-name $.edges[0].destId"]),
    ],
)
def test_workloads_that_contradict_themselves_are_refused(
    path: tuple[str | int, ...], to: Any, found: list[str]
) -> None:
    with refuses(*found):
        read_piper(with_value(workload(), path, to))

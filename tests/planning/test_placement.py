"""Operators on devices: contiguous and any placements against brute force, and answers of others."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.documents.readers.dnn_partitioning import Operator, OperatorGraph, read_dnn_partitioning
from jigsaw_opt.errors import InfeasibleError, InvalidInputError
from jigsaw_opt.planning.placement import contiguous_placement, exact_placement, groups_of, ordered_groups
from jigsaw_opt.solvers.options import Options
from tests.refusals import refuses


def random_workload(seed: int) -> OperatorGraph:
    """A few operators, some backward ones beside their forward ones, on two accelerators and perhaps a CPU."""
    random = Random(f"workload/{seed}")
    size, training = 5, seed % 2 == 1
    edges = {(random.randrange(k), k) for k in range(1, size)} | {
        (k - 1, k) for k in range(1, size) if random.random() < 0.4
    }
    operators = [
        Operator(
            k,
            random.choice((None, 3, 5, 7, 9)) if k == 2 else random.randint(1, 9),
            random.randint(5, 30),
            random.randint(0, 4),
            False,
            k,
            random.randint(0, 4),
        )
        for k in range(size)
    ]
    if training:
        mirrored = [
            Operator(
                size + k,
                random.randint(1, 9),
                random.randint(5, 30),
                random.randint(0, 4),
                True,
                k,
                random.randint(0, 4),
            )
            for k in range(size)
        ]
        edges |= {(size + head, size + tail) for tail, head in edges} | {(size - 1, 2 * size - 1)}
        operators += mirrored
    return OperatorGraph(
        tuple(operators),
        tuple(sorted(edges)),
        2,
        int(seed % 3 == 0 or operators[2].accelerator_ns is None),
        14 if seed % 4 else 10**6,
    )


def load(graph: OperatorGraph, on: list[int], device: int) -> float:
    """Load of a device, from the definition alone."""
    own = {at for at, each in enumerate(on) if each == device}
    if device >= graph.accelerators:
        return sum(graph.operators[at].cpu_ns for at in own)
    if any(graph.operators[at].accelerator_ns is None for at in own):
        return float("inf")
    if sum(graph.operators[at].bytes for at in own) > graph.memory:
        return float("inf")
    moved = {tail for tail, head in graph.edges if (tail in own) != (head in own)}
    return sum(graph.operators[at].accelerator_ns or 0 for at in own) + sum(
        graph.operators[at].output_ns for at in moved
    )


def brute_force(graph: OperatorGraph, contiguous: bool) -> float:
    """The least maximum load over all placements of groups, or of those whose devices can stand in a row."""
    groups = sorted({operator.group for operator in graph.operators})
    devices = range(graph.accelerators + graph.cpus)
    best = float("inf")
    for choice in product(devices, repeat=len(groups)):
        on = [choice[groups.index(operator.group)] for operator in graph.operators]
        if contiguous and not in_a_row(graph, on):
            continue
        best = min(best, max(load(graph, on, device) for device in devices))
    return best


def in_a_row(graph: OperatorGraph, on: list[int]) -> bool:
    """Whether the devices have an order in which all edges of the forward pass go forward."""
    after = {
        (on[tail], on[head])
        for tail, head in graph.edges
        if on[tail] != on[head] and not graph.operators[tail].backward and not graph.operators[head].backward
    }
    left = set(on)
    while left:
        first = {each for each in left if not any(one in left and other == each for one, other in after)}
        if not first:
            return False
        left -= first
    return True


@pytest.mark.parametrize("seed", range(12))
def test_placements_agree_with_brute_force(seed: int) -> None:
    graph = random_workload(seed)
    expected = brute_force(graph, contiguous=True)
    start = None
    if expected == float("inf"):
        with pytest.raises(InfeasibleError):
            contiguous_placement(ordered_groups(graph))
    else:
        start = contiguous_placement(ordered_groups(graph))
        assert start.max_load_ns == start.bound_ns == expected
        assert sorted(node for device in start.devices for node in device.nodes) == list(range(len(graph.operators)))
    if brute_force(graph, contiguous=False) < float("inf"):
        found = exact_placement(groups_of(graph), start, Options(time_limit=30, threads=1))
        assert found.max_load_ns == found.bound_ns == brute_force(graph, contiguous=False)


def test_every_problem_of_a_workload_is_named() -> None:
    node = {"id": 1, "supportedOnFpga": 1, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": 0, "size": 1}
    tree = {
        "maxSizePerFPGA": 1,
        "maxFPGAs": 0,
        "maxCPUs": 0,
        "nodes": [node, node],
        "edges": [{"sourceId": 1, "destId": 9, "cost": 0}],
    }
    with pytest.raises(InvalidInputError) as caught:
        read_dnn_partitioning(json.dumps(tree))
    assert [problem.path for problem in caught.value.problems] == ["$.nodes[1].id", "$.edges[0].destId", "$"]
    with refuses("wrong-type $.nodes[0].isBackwardNode"):
        read_dnn_partitioning(json.dumps(tree | {"nodes": [node | {"isBackwardNode": 2}]}))


def test_contiguous_loads_are_those_of_the_paper_s_program(shared_data: Path) -> None:
    folder = shared_data / "pipeline"
    answers = json.loads((folder / "reference_results.json").read_text())["dnn_partitioning"]
    for name in ("LayerGraphs_bert24_inference", "LayerGraphs_bert24_training", "LayerGraphs_resnet50_inference"):
        path = f"dnn-partitioning/{name}.json"
        found = contiguous_placement(ordered_groups(read_dnn_partitioning((folder / path).read_bytes())))
        assert found.max_load_ns / 1e6 == pytest.approx(answers[path]["dp_contiguous"]["max_load"], abs=1e-4)

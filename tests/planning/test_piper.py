"""Piper's plans: against brute force on small graphs, and the released planner's answers where they are there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf
from pathlib import Path

import pytest

from jigsaw_opt.documents.readers.piper import NodeOption, PiperEdge, PiperGraph, PiperNode, read_piper
from jigsaw_opt.errors import InfeasibleError, InvalidInputError
from jigsaw_opt.planning.piper import PiperStage, piper_plan
from tests.refusals import misuse


def random_graph(seed: int) -> PiperGraph:
    dice = random.Random(seed)
    count = dice.randint(1, 5)
    edges = tuple(
        PiperEdge(a, b, dice.randint(0, 40)) for b in range(count) for a in range(b) if dice.random() < 2 / count
    )

    def option(name: str, node: int, degree: int, slower: int) -> NodeOption:
        received = {edge.source: dice.randint(0, 9) * (degree - 1) for edge in edges if edge.target == node}
        sent = {edge.target: dice.randint(0, 9) * (degree - 1) for edge in edges if edge.source == node}
        flight, always = dice.randint(1, 9), dice.randint(0, 9)
        time = dice.randint(5, 20) / degree + slower
        return NodeOption(name, time, dice.randint(0, 90), flight / (1 + slower), always / (1 + slower), received, sent)

    nodes = []
    for node in range(count):
        degrees = [1, 2] if dice.random() < 0.7 else [1]
        own = {
            degree: tuple(
                option(name, node, degree, k * dice.randint(1, 4))
                for k, name in enumerate(("plain", "again")[: dice.randint(1, 2)])
            )
            for degree in degrees
        }
        nodes.append(PiperNode(10 + node, own))
    return PiperGraph(tuple(nodes), edges, dice.randint(1, 4), dice.choice((12, 25, 60)), 8.0, dice.choice((2, 4, 6)))


def stage_time(graph: PiperGraph, own: set[int], degree: int, copies: int, flight: int) -> float:
    """The definition, node by node."""

    def cost(node: int, option: NodeOption) -> float:
        sent = 4 * (copies - 1) * option.parameter_bytes / copies / graph.micro_batches
        for edge in graph.edges:
            if edge.target == node and edge.source not in own:
                sent += 2 * (edge.bytes + option.received_bytes[edge.source]) / copies
            if edge.source == node and edge.target not in own:
                sent += 2 * (edge.bytes + option.sent_bytes[edge.target]) / copies
        return option.time / copies + sent / graph.bandwidth

    def memory(option: NodeOption) -> float:
        return option.flight_bytes * flight + option.static_bytes

    total, above, changes = 0.0, -graph.memory, []
    for node in sorted(own):
        options = graph.nodes[node].options.get(degree, ())
        if not options:
            return inf
        fastest = min(options, key=lambda option: cost(node, option))
        total, above = total + cost(node, fastest), above + memory(fastest)
        for other in options:
            saved = memory(fastest) - memory(other)
            if saved > 1e-9:
                lost = cost(node, other) - cost(node, fastest)
                changes.append((lost / saved, lost, saved))
    for _, lost, saved in sorted(changes, key=lambda change: change[0]):
        if above < 1e-9:
            break
        total, above = total + lost, above - saved
    return total if above < 1e-9 else inf


def divided(graph: PiperGraph, placed: frozenset[int] = frozenset()) -> Iterator[list[set[int]]]:
    """All ways to cut the graph into stages, first to last."""
    everything = set(range(len(graph.nodes)))
    if placed == everything:
        yield []
    rest = sorted(everything - placed)
    for bits in range(1, 1 << len(rest)):
        own = {node for at, node in enumerate(rest) if bits >> at & 1}
        if all(edge.source in placed | own for edge in graph.edges if edge.target in own):
            for behind in divided(graph, placed | own):
                yield [own, *behind]


def brute_force(graph: PiperGraph) -> float:
    best = inf

    def go(stages: list[set[int]], devices: int, behind: int, slowest: float) -> None:
        # From the last stage on, so that the sum of degrees behind is known.
        nonlocal best
        if not stages:
            best = min(best, slowest)
            return
        for copies in (d for d in range(1, devices + 1) if graph.micro_batches % d == 0):
            if behind + copies > min(graph.devices, graph.micro_batches):
                break
            for degree in (1, 2):
                if degree * copies <= devices:
                    flight = ceil((behind + copies) / copies)
                    time = stage_time(graph, stages[-1], degree, copies, flight)
                    go(stages[:-1], devices - degree * copies, behind + copies, max(slowest, time))

    for stages in divided(graph):
        go(stages, graph.devices, 0, 0.0)
    return best


def require_right(graph: PiperGraph, stages: tuple[PiperStage, ...], time: float) -> None:
    behind = 0
    assert max(stage.time for stage in stages) == time
    for stage in reversed(stages):
        behind += stage.data_parallel
        flight = ceil(behind / stage.data_parallel)
        own = {number - 10 for number in stage.nodes}
        exact = stage_time(graph, own, stage.tensor_parallel, stage.data_parallel, flight)
        assert stage.time == pytest.approx(exact)
        held = 0.0
        for node, name in zip(stage.nodes, stage.options, strict=True):
            (way,) = [option for option in graph.nodes[node - 10].options[stage.tensor_parallel] if option.name == name]
            held += way.flight_bytes * flight + way.static_bytes
        assert held <= graph.memory + 1e-6
    assert sum(stage.data_parallel * stage.tensor_parallel for stage in stages) <= graph.devices


def test_plans_agree_with_brute_force() -> None:
    feasible = 0
    for seed in range(60):
        graph = random_graph(seed)
        expected = brute_force(graph)
        if expected == inf:
            with pytest.raises(InfeasibleError):
                piper_plan(graph)
            continue
        feasible += 1
        found = piper_plan(graph)
        assert found.time_per_sample == pytest.approx(expected)
        assert sorted(node for stage in found.stages for node in stage.nodes) == [node.number for node in graph.nodes]
        require_right(graph, found.stages, found.time_per_sample)
    assert 20 <= feasible < 60


def test_many_sets_are_bounded_by_the_plan_of_one_order() -> None:
    found = 0
    for seed in range(40):
        # Five nodes without edges have 32 closed sets, and six in one order.
        graph = replace(random_graph(seed), edges=(), devices=3)
        expected = brute_force(graph) if len(graph.nodes) == 5 else inf
        if expected < inf:
            found += 1
            assert piper_plan(graph).time_per_sample == pytest.approx(expected)
    assert found >= 3


def test_more_than_two_ways_at_a_degree_are_refused() -> None:
    graph = random_graph(1)
    node = graph.nodes[0]
    (first, *_) = node.options[1]
    many = tuple(replace(first, name=str(k)) for k in range(3))
    with misuse("too-large", naming=["2 ways"]):
        piper_plan(replace(graph, nodes=(replace(node, options={1: many}), *graph.nodes[1:])))


def document() -> dict[str, object]:
    def way(before: list[str], after: list[str], name: str = "vanilla") -> dict[str, object]:
        numbers = {"timePerSample": 1.5, "parameterSize": 8, "memoryUsageA": 4, "memoryUsageB": 6}
        return {"id": name, **numbers, "syncTimeFw": dict.fromkeys(before, 0), "syncTimeBw": dict.fromkeys(after, 0)}

    return {
        "maxDevices": 2,
        "maxMemoryPerDevice": 100,
        "bandwidth": 10,
        "mbsInBatch": 4,
        "nodes": [{"id": 1, "TMPCs": {"1": [way([], ["5"])]}}, {"id": 5, "TMPCs": {"1": [way(["1"], [])]}}],
        "edges": [{"sourceId": 1, "destId": 5, "communicationCost": 2}],
    }


def test_a_document_is_read_and_every_problem_is_named() -> None:
    tree = document()
    graph = read_piper(json.dumps(tree))
    assert graph.edges == (PiperEdge(0, 1, 2),)
    # Two stages pay for the output that is sent and its gradient; two copies would pay for parameters, and take 2.3.
    assert piper_plan(graph).time_per_sample == pytest.approx(1.5 + 2 * 2 / 10)
    with pytest.raises(InvalidInputError) as caught:
        read_piper(json.dumps(tree | {"edges": [*tree["edges"], {"sourceId": 5, "destId": 1, "communicationCost": 2}]}))  # type: ignore[misc]
    paths = [problem.path for problem in caught.value.problems]
    assert paths[0] == "$.edges"
    assert '$.nodes[0].TMPCs["1"][0].syncTimeFw' in paths
    with pytest.raises(InvalidInputError) as caught:
        read_piper(json.dumps(tree | {"maxDevices": 0, "bandwidth": "fast", "mbsInBatch": 1.5}))
    assert [problem.path for problem in caught.value.problems] == ["$.maxDevices", "$.bandwidth", "$.mbsInBatch"]


@pytest.mark.slow
def test_times_are_those_of_the_released_planner(shared_data: Path) -> None:
    folder, compared = shared_data / "pipeline", 0
    for answer in json.loads((folder / "reference_results.json").read_text())["piper"]:
        if answer["devices"] > 16:
            continue
        graph = replace(
            read_piper((folder / answer["input"]).read_bytes()),
            devices=answer["devices"],
            memory=answer["mem_gib"] * 2**30,
            bandwidth=answer["bandwidth_gib_per_s"] * 2**30,
            micro_batches=answer["microbatches"],
        )
        if answer["feasible"]:
            assert piper_plan(graph).time_per_sample == pytest.approx(answer["time_per_sample"], rel=1e-8)
        else:
            with pytest.raises(InfeasibleError):
                piper_plan(graph)
        compared += 1
    assert compared == 5

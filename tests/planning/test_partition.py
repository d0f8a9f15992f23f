"""Partitions against brute force and answers of the released optimiser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from math import lcm
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents.readers import read_layer_graph
from jigsaw_opt.errors import InfeasibleError, UsageError
from jigsaw_opt.planning.partition.costs import Level, Variant
from jigsaw_opt.planning.partition.partition import partition as planned
from jigsaw_opt.planning.partition.positions import positions_of
from jigsaw_opt.planning.partition.result import Partition, best_partition, decode_partition, partition_tree
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer


def partition(graph: LayerGraph, levels: Sequence[Level], **options: Any) -> Partition:
    return best_partition(graph, *zip(*((level.machines, level.bandwidth) for level in levels), strict=True), **options)


def random_graph(seed: int, size: int) -> LayerGraph:
    """A graph with one source, mostly a chain."""
    random = Random(f"layers/{seed}")
    layers = [
        MeasuredLayer(f"n{k}", random.randint(1, 9), random.randint(0, 9), random.randint(0, 9), random.randint(1, 9))
        for k in range(size)
    ]
    edges = {(random.randrange(max(0, k - 2), k), k) for k in range(1, size)}
    edges |= {(k - 1, k) for k in range(1, size) if random.random() < 0.6}
    return LayerGraph(tuple(layers), tuple(sorted(edges)))


def chain(*layers: tuple[int, int, int]) -> LayerGraph:
    """Layers one behind the other: microseconds, parameters, outputs."""
    made = [MeasuredLayer(f"n{k}", time, 0, weights, sent) for k, (time, weights, sent) in enumerate(layers)]
    return LayerGraph(tuple(made), tuple((k, k + 1) for k in range(len(made) - 1)))


def test_what_is_sent_is_what_the_next_layer_reads() -> None:
    graph = chain(*((1000, 0, 8 - k) for k in range(8)))
    layers = tuple(replace(layer, activation_bytes=99, output_bytes=layer.activation_bytes) for layer in graph.layers)
    level = Level(2, 1e3)
    found = partition(replace(graph, layers=layers), [level], variant="paper", replicate=False)
    first = found.stages[0]
    assert first.output_bytes == 9 - len(first.nodes)
    assert first.activation_bytes == 99 * len(first.nodes)
    assert found.time_s == partition(graph, [level], variant="paper", replicate=False).time_s


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_the_scatter_of_layers_is_carried_into_the_time_of_a_minibatch(variant: Variant) -> None:
    """Whatever times of their ranges the layers take, the stages take a time within their own."""
    for seed in range(12):
        random = Random(f"scatter/{seed}")
        graph, levels = random_graph(seed, 6), [Level(2, 1_000_000), Level(2, 500_000)][: 1 + seed % 2]
        assert partition(graph, levels, variant=variant).time_range_s is None
        exact = tuple(replace(layer, backward_range_us=(layer.backward_us,) * 2) for layer in graph.layers)
        found = partition(replace(graph, layers=exact), levels, variant=variant, activations=True)
        assert found.time_range_s == (found.time_s, found.time_s)
        ranges = [(layer.forward_us - 1, layer.forward_us + random.randint(0, 9)) for layer in graph.layers]
        layers = tuple(replace(layer, forward_range_us=each) for layer, each in zip(graph.layers, ranges, strict=True))
        ranged = replace(graph, layers=layers)
        found = partition(ranged, levels, variant=variant)
        assert found.time_range_s is not None and decode_partition(json.dumps(partition_tree(found))) == found
        assert found.time_range_s[0] <= found.time_s <= found.time_range_s[1]
        for end, time in zip(ranged.ends or (), found.time_range_s, strict=True):
            best = partition(end, levels, variant=variant)
            assert best.time_s <= time, "other stages may be faster then, but none is faster than all"
            if [(s.nodes, s.replicas) for s in best.stages] == [(s.nodes, s.replicas) for s in found.stages]:
                assert len(levels) > 1 or time == best.time_s


def brute_force(graph: LayerGraph, level: Level, variant: Variant, activations: bool) -> float:
    """The least time of a chain on one level, by going through all cuts and copies."""
    size, machines, rate, best = len(graph.layers), level.machines, level.bandwidth, float("inf")
    for count in range(1, min(size, machines) + 1):
        for cuts in combinations(range(1, size), count - 1):
            for copies in product(range(1, machines + 1), repeat=count):
                if sum(copies) == machines:
                    ends = zip((0, *cuts), (*cuts, size), copies, strict=True)
                    best = min(best, slowest(graph, list(ends), rate, variant, activations))
    return best


def slowest(
    graph: LayerGraph, stages: list[tuple[int, int, int]], rate: float, variant: Variant, activations: bool
) -> float:
    """Time of the slowest stage or transfer (PAPERS: T and A of SOSP'19, and the released optimiser's)."""
    times = []
    for number, (begin, end, m) in enumerate(stages):
        compute = sum(layer.time_us for layer in graph.layers[begin:end]) / 1e6
        weights = sum(layer.parameter_bytes for layer in graph.layers[begin:end])
        received = 2 * graph.layers[begin - 1].sent_bytes / rate if number else 0.0
        onward = 2 * graph.layers[end - 1].sent_bytes / rate if 0 < number < len(stages) - 1 else 0.0
        if variant == "paper":
            times += [max(compute, 2 * (m - 1) * weights / rate) / m, received]
        else:
            times.append((compute + 4 * (m - 1) * weights / (rate * m)) / m)
            times += [received / m, onward / m] if activations else []
    return max(times)


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_chains_agree_with_brute_force(seed: int, variant: Variant, activations: bool) -> None:
    random = Random(seed)
    graph = chain(*((random.randint(1, 20), random.randint(0, 30), random.randint(0, 30)) for _ in range(5)))
    level = Level(4, random.choice((1e6, 4e6, 2e7)))
    found = partition(graph, [level], variant=variant, activations=activations)
    assert found.time_s == pytest.approx(brute_force(graph, level, variant, activations), rel=1e-12)
    bounds = [(len(stage.nodes), stage.replicas) for stage in found.stages]
    ends = [sum(size for size, _ in bounds[: k + 1]) for k in range(len(bounds))]
    stages = [(end - size, end, copies) for end, (size, copies) in zip(ends, bounds, strict=True)]
    assert slowest(graph, stages, level.bandwidth, variant, activations) == pytest.approx(found.time_s, rel=1e-12)


def brute_force_of_graph(graph: LayerGraph, level: Level) -> float:
    """The least time of the slowest stage or transfer by the paper's costs, over all stages of all layers."""
    least = float("inf")
    for count in range(1, level.machines + 1):
        splits = [m for m in product(range(1, level.machines + 1), repeat=count) if sum(m) == level.machines]
        for stage in product(range(count), repeat=len(graph.layers)):
            if set(stage) != set(range(count)) or any(stage[tail] > stage[head] for tail, head in graph.edges):
                continue
            compute, weights = [0.0] * count, [0.0] * count
            for layer, own in zip(graph.layers, stage, strict=True):
                compute[own] += layer.time_us / 1e6
                weights[own] += layer.parameter_bytes
            sent = [
                sum(graph.layers[k].sent_bytes for k in {a for a, b in graph.edges if stage[a] <= cut < stage[b]})
                for cut in range(count - 1)
            ]
            for copies in splits:
                own = (
                    max(c, 2 * (m - 1) * w / level.bandwidth) / m
                    for c, w, m in zip(compute, weights, copies, strict=True)
                )
                least = min(least, max(*own, *(2 * size / level.bandwidth for size in sent), 0.0))
    return least


@pytest.mark.parametrize("seed", range(4))
def test_graphs_agree_with_brute_force(seed: int) -> None:
    graph, level = random_graph(seed, 7), Level(3, 2e6)
    found = partition(graph, [level], variant="paper")
    assert found.time_s == pytest.approx(brute_force_of_graph(graph, level), rel=1e-12)
    names = [name for stage in found.stages for name in stage.nodes]
    assert sorted(names) == sorted(layer.name for layer in graph.layers)
    assert all(names.index(f"n{tail}") < names.index(f"n{head}") for tail, head in graph.edges)


@pytest.mark.parametrize("seed", range(6))
def test_a_partition_is_planned_as_the_steady_state_that_takes_as_long(seed: int) -> None:
    """On one level or two, with outputs paid for; rounded up to a microsecond for each copy of a stage."""
    graph, machines = random_graph(seed, 6), ((3,), (2, 2))[seed % 2]
    found = planned(graph, machines, (2e6, 5e5)[: len(machines)], activations=True)
    assert found.plan is not None and not check(found.instance, found.plan)
    assert found.details == best_partition(graph, machines, (2e6, 5e5)[: len(machines)], activations=True)
    count = lcm(*(stage.replicas for stage in found.details.stages))
    assert found.bound <= found.plan.objective <= found.bound + 1 + 2 * count
    assert found.proof.sentence and found.proof.relaxation == "partition"


def test_a_server_within_a_rack_is_a_machine_of_the_outer_level() -> None:
    graph = chain((10, 0, 0), (10, 0, 0))
    found = partition(graph, [Level(2, 1e6), Level(2, 1e6)])
    assert found.time_s == pytest.approx(20e-6 / 4)
    assert found.single_worker_s == pytest.approx(20e-6)
    assert sum(stage.replicas for stage in found.stages) == 4
    assert {each.level for each in found.outer} == {1, 2}


def test_noam_is_workers_over_copies_of_the_first_stage() -> None:
    found = partition(chain((30, 0, 0), (10, 9, 0)), [Level(4, 1e3)])
    assert [stage.replicas for stage in found.stages] == [3, 1]
    assert found.noam == 2


def test_without_replication_each_stage_has_one_gpu() -> None:
    found = partition(chain((3, 0, 0), (1, 0, 0), (2, 0, 0)), [Level(3, 1e6)], replicate=False)
    assert [stage.replicas for stage in found.stages] == [1, 1, 1]
    assert found.time_s == pytest.approx(3e-6)
    with pytest.raises(InfeasibleError, match="all machines"):
        partition(chain((3, 0, 0)), [Level(2, 1e6)], replicate=False)


def test_memory_is_kept_or_nothing_is_found() -> None:
    graph = chain((10, 5, 5), (10, 5, 5))
    assert partition(graph, [Level(4, 1e9)], memory=20).time_s > 0
    # One stage on all four keeps nothing in flight; so the released optimiser counts.
    alone = partition(graph, [Level(4, 1e9)], memory=1, keeps_own=False)
    assert [stage.replicas for stage in alone.stages] == [4]
    with pytest.raises(InfeasibleError, match="memory"):
        partition(graph, [Level(2, 1e9)], replicate=False, memory=1)


def test_gradients_and_optimiser_state_are_held_once() -> None:
    graph = replace(chain((10, 100, 10), (10, 50, 10)), state_factor=4)
    level = Level(2, 1e9)
    held = [stage.state_bytes for stage in partition(graph, [level], replicate=False).stages]
    assert held == [300, 150]
    # Two minibatches are in flight in the first stage; the released optimiser counts one, and none in the last.
    for keeps_own, held in ((True, 2 * 110 + 300), (False, 110 + 300)):
        found = partition(graph, [level], replicate=False, memory=held, keeps_own=keeps_own)
        assert found.stages[0].nodes == ("n0",)
        with pytest.raises(InfeasibleError, match="memory"):
            partition(graph, [level], replicate=False, memory=held - 1, keeps_own=keeps_own)
    with pytest.raises(InfeasibleError, match="memory"):
        planned(chain((1000, 10, 10), (1000, 10, 500)), [1], [1e9], memory=500)


def test_positions_have_closed_and_nested_sets_of_layers() -> None:
    graph = LayerGraph(chain((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)).layers, ((0, 1), (0, 2), (1, 3), (2, 3)))
    positions = positions_of(graph)
    assert positions.layers == (0, 0b1, 0b11, 0b101, 0b111, 0b1111)
    assert positions.within.tolist()[2] == [False, False, False, False, True, True]
    assert positions.sent_bytes.tolist() == [0, 1, 2, 2, 2, 0]


def test_parts_without_an_edge_are_refused() -> None:
    graph = LayerGraph(chain((1, 1, 1), (1, 1, 1)).layers, ())
    with pytest.raises(UsageError, match="several parts"):
        partition(graph, [Level(1, 1.0)])


def _answers(folder: Path, most_states: int) -> list[dict[str, object]]:
    found = json.loads((folder / "pipeline" / "reference_results.json").read_text())["pipedream"]
    return [entry for entry in found if entry["states"] <= most_states]


def test_times_are_those_of_the_released_optimiser(shared_data: Path) -> None:
    for entry in _answers(shared_data, 60):
        graph = read_layer_graph((shared_data / "pipeline" / str(entry["input"])).read_bytes())
        assert _solved(graph, entry).time_s == pytest.approx(entry["pipeline_s_per_minibatch"], rel=1e-6), entry


def _solved(graph: LayerGraph, entry: dict[str, object]) -> Partition:
    machines, rates = entry["machines_per_level"], entry["bandwidth_bytes_per_s"]
    found = partition(
        graph,
        [Level(count, rate) for count, rate in zip(machines, rates, strict=True)],  # type: ignore[call-overload]
        activations=bool(entry["activation_comm_modelled"]),
        replicate=not entry["no_replication"],
        memory=entry["memory_bytes"],  # type: ignore[arg-type]
        keeps_own=False,
    )
    assert found.data_parallel_s == pytest.approx(entry["data_parallel_s"], rel=1e-6)
    assert found.single_worker_s == pytest.approx(entry["single_worker_s"], rel=1e-6)
    assert found.prefixes == entry["states"]
    return found

"""Layer profiles: the document, and what else states layers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jigsaw_opt.documents import decode_layers, encode_layers, encode_model, load_document, read_layers, schema
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Model, Segment
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from tests.refusals import misuse

GRAPH = """\
node1 -- Input0 -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=4.0, parameter_size=0.000
node2 -- Conv2d(3, 8) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=800.0, \
parameter_size=100.000
node3 -- Linear(8, 2) -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=[8.0; 1.0], \
parameter_size=90000.000
\tnode1 -- node2
\tnode2 -- node3
"""
LAYER = {"name": "a", "forward_us": 3, "backward_us": 7, "parameter_bytes": 1, "activation_bytes": 5}
MODEL = Model(
    (Segment("a", {"v100": 3, "t4": 6}, {"v100": 7, "t4": 9}, 1, 5), Segment("b", {"v100": 1}, {"v100": 2}, 0, 6)),
    state_factor=4,
)
COUNTS = st.integers(0, 2**53 - 1)


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    """Layers whose edges go forward and join all of them."""
    names = draw(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=5, unique=True))
    layers = []
    for name in names:
        backward = draw(COUNTS)
        weights = draw(st.none() | st.integers(0, backward))
        modules = tuple(draw(st.lists(st.text("ab.", min_size=1), max_size=2)))
        layers.append(
            MeasuredLayer(
                name,
                draw(COUNTS) or 1,
                backward,
                draw(COUNTS),
                draw(COUNTS),
                weights,
                draw(st.none() | COUNTS),
                modules,
            )
        )
    pairs = [(tail, head) for head in range(len(layers)) for tail in range(head)]
    chosen = [(draw(st.integers(0, head - 1)), head) for head in range(1, len(layers))]
    if more := sorted(set(pairs) - set(chosen)):
        chosen += draw(st.lists(st.sampled_from(more), unique=True))
    edges = draw(st.sampled_from((chain_edges(len(layers)), tuple(chosen))))
    batch, factor = draw(st.none() | st.integers(1, 9)), draw(st.integers(1, 9))
    return LayerGraph(tuple(layers), edges, batch, factor, draw(st.none() | st.just("v100")))


@given(graphs())
def test_a_profile_is_read_as_it_was_written(graph: LayerGraph) -> None:
    data = encode_layers(graph)
    jsonschema.validate(json.loads(data), schema("layers"))
    found = read_layers(data)
    assert replace(found, edges=tuple(sorted(found.edges))) == replace(graph, edges=tuple(sorted(graph.edges)))


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"format": "jigsaw-layers/2"}, ['$.format: must be "jigsaw-layers/1"']),
        ({"layers": []}, ["$.layers: needs at least 1 item"]),
        ({"layers": [LAYER, LAYER]}, ['$.layers[1].name: duplicate name "a"']),
        (
            {"layers": [LAYER | {"weight_us": 8, "output_byte": 1}, LAYER | {"name": "", "forward_us": -1}]},
            [
                '$.layers[0].output_byte: unknown key "output_byte" (did you mean "output_bytes"?)',
                "$.layers[0].weight_us: must be at most backward_us, which is 7; is 8",
                '$.layers[1].name: must be a non-empty name; is ""',
                "$.layers[1].forward_us: must be an integer from 0",
            ],
        ),
        ({"layers": [LAYER | {"forward_us": 0}]}, ["$.layers: the forward times add up to 0"]),
        (
            {"edges": [[0, 1], [1], [0, 2], [0, 1], [1, 0]]},
            [
                "$.edges[1]: needs exactly 2 items",
                "$.edges[2][1]: no layer has the number 2",
                "$.edges[3]: duplicate edge from 0 to 1",
                "$.edges: there is a cycle",
            ],
        ),
        ({"edges": []}, ["$.edges: the layers are in 2 parts that no edge joins, as numbers 0 and 1"]),
        ({"edges": [[0, "1"]], "batch": 0, "state_factor": 0.5}, ["$.edges[0][1]", "$.batch", "$.state_factor"]),
        ({"layers": {"a": LAYER}, "edges": 3}, ["$.layers: must be a list", "$.edges: must be a list"]),
    ],
)
def test_every_problem_is_told_with_its_path(change: dict[str, Any], problems: list[str]) -> None:
    tree = {"format": "jigsaw-layers/1", "layers": [LAYER, LAYER | {"name": "b"}]} | change
    with pytest.raises(InvalidInputError) as caught:
        decode_layers(json.dumps(tree))
    told = sorted(map(str, caught.value.problems))
    assert len(told) == len(problems)
    for problem in problems:
        assert any(problem in one for one in told), (problem, told)


def test_ranges_of_times_hold_the_times() -> None:
    layer = MeasuredLayer("a", 5, 7, 1, 1, forward_range_us=(4, 9), backward_range_us=(7, 7))
    graph = LayerGraph((layer,), ())
    assert decode_layers(encode_layers(graph)) == graph
    with pytest.raises(InvalidInputError) as raised:
        encode_layers(replace(graph, layers=(replace(layer, forward_range_us=(6, 9), backward_range_us=(1, 6)),)))
    assert [problem.path.split(".")[-1] for problem in raised.value.problems] == [
        "forward_range_us",
        "backward_range_us",
    ]


def test_a_graph_of_pipedream_knows_what_is_sent(tmp_path: Path) -> None:
    layers = (
        MeasuredLayer("node2", 1000, 2000, 100, 800, output_bytes=800, input_bytes=4),
        MeasuredLayer("node3", 500, 500, 90000, 9, output_bytes=9),
    )
    graph = LayerGraph(layers, ((0, 1),))
    assert read_layers(GRAPH) == decode_layers(encode_layers(graph)) == graph and graph.knows_input
    (tmp_path / "layers.json").write_bytes(encode_layers(graph))
    assert load_document(tmp_path / "layers.json") == graph
    unmeasured = read_layers(GRAPH.replace("activation_size=4.0", "activation_size=0.0"))
    assert unmeasured.layers[0].input_bytes is None and not unmeasured.knows_input


def test_segments_of_a_model_are_layers() -> None:
    tree = json.loads(encode_model(MODEL))
    turned = {key: tree[key] for key in reversed(tree)}  # a model is known whatever its first key is
    found = read_layers(json.dumps(turned))
    layers = (MeasuredLayer("a", 3, 7, 1, 5), MeasuredLayer("b", 1, 2, 0, 6))
    assert found == LayerGraph(layers, ((0, 1),), state_factor=4, gpu_type="v100")
    both = Model(MODEL.segments[:1], state_factor=4)
    assert read_layers(encode_model(both), gpu_type="t4").layers[0].backward_us == 9
    with misuse("ambiguous gpu_type"):
        read_layers(encode_model(both))
    with misuse("unknown-name gpu_type"):
        read_layers(encode_model(both), gpu_type="a100")


def test_another_type_of_gpu_than_the_profile_has_is_refused() -> None:
    data = encode_layers(LayerGraph((MeasuredLayer("a", 1, 1, 1, 1),), (), gpu_type="v100"))
    assert read_layers(data, gpu_type="v100").gpu_type == "v100"
    with misuse("mismatch", naming=['"v100"', '"a100"']):
        read_layers(data, "f.json", "a100")

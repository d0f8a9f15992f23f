"""Profiles of other projects, small ones written here and the published ones where they are at hand."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.documents.readers import read_deeppool, read_deeppool_layers, read_layer_graph, read_pipedream
from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Server
from jigsaw_opt.problem.measured.layers import parts_of
from tests.refusals import carries, misuse, refuses

PIPEDREAM = ["alexnet", "densenet121", "gnmt", "resnet50", "resnext101", "vgg16"]
DATA = Path(__file__).parents[1] / "data" / "cases"
DAPPLE = ["amoeba-18-pbs-8", "amoeba-6-pbs-8-complicated", "bert-24-pbs-6", "gnmt-16-pbs-64", "vgg-19-pbs-32"]


def node(name: str, kind: str = "Linear(2, 2)", forward: str = "1.000", activation: str = "10", size: int = 100) -> str:
    return (
        f"{name} -- {kind} -- forward_compute_time={forward}, backward_compute_time=2.000, "
        f"activation_size={activation}, parameter_size={size}.000"
    )


def total(model: Model, field: str) -> int:
    values = [getattr(segment, field) for segment in model.segments]
    return sum(value if isinstance(value, int) else value["v100"] for value in values)


def problems(call: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        call()
    return [(problem.path, problem.message) for problem in caught.value.problems]


def is_valid(model: Model) -> bool:
    """Whether an instance with the model is one that the decoder takes."""
    cluster = Cluster((Server("s0", "v100", 1, 1, 1),))
    instance = Instance("x", cluster, {"net": model}, (Job("a", "net", 1, 1),))
    return decode_instance(encode_instance(instance)) == instance


def graph(nodes: list[str], edges: str) -> str:
    """A profile with `edges` given as ``"a-b b-c"``."""
    return "\n".join(nodes + ["\t{} -- {}".format(*edge.split("-")) for edge in edges.split()])


DIAMOND = graph(
    [
        node("n5", "Linear(4, 4)"),
        node("n1", "Input0", forward="600.0"),
        node("n2", activation="[10; 20.0; 30]"),
        node("n3", forward="0.0005"),
        node("n4"),
        node("n6", "__getitem__(1)"),
    ],
    "n1-n2 n2-n3 n2-n4 n3-n5 n4-n5 n5-n6",
)


def test_a_graph_is_cut_where_every_path_passes() -> None:
    model = read_pipedream(DIAMOND, "v100")
    assert [segment.name for segment in model.segments] == ["n2", "n3..n5"]
    assert [segment.forward_us["v100"] for segment in model.segments] == [1000, 2001]
    assert [segment.activation_bytes for segment in model.segments] == [60, 30]
    assert [segment.parameter_bytes for segment in model.segments] == [100, 300]
    assert is_valid(model)


def test_edges_of_a_mask_may_run_past_a_cut() -> None:
    mask = node("m", "mask", size=0).replace("backward_compute_time=2.000", "backward_compute_time=0")
    nodes = [mask, node("a"), node("b"), node("c")]
    assert len(read_pipedream(graph(nodes, "m-a m-b m-c a-b b-c"), "v100").segments) == 3
    assert len(read_pipedream(graph([*nodes[1:], node("m")], "m-a m-b m-c a-b b-c"), "v100").segments) == 2


def test_layers_stand_behind_those_that_they_read_from() -> None:
    turned = "\n".join([*reversed(DIAMOND.splitlines()[:6]), *DIAMOND.splitlines()[6:]])
    graph = read_layer_graph(turned)
    assert sorted(layer.name for layer in graph.layers) == ["n2", "n3", "n4", "n5"]
    names = [(graph.layers[tail].name, graph.layers[head].name) for tail, head in graph.edges]
    assert sorted(names) == [("n2", "n3"), ("n2", "n4"), ("n3", "n5"), ("n4", "n5")]
    assert all(tail < head for tail, head in graph.edges)


def test_at_most_so_many_segments_of_similar_time() -> None:
    nodes = [node(f"n{k}", forward=f"{k}.0") for k in range(1, 9)]
    text = graph(nodes, " ".join(f"n{k}-n{k + 1}" for k in range(1, 8)))
    for most in range(1, 12):
        model = read_pipedream(text, "v100", segments=most)
        assert len(model.segments) == min(most, 8)
        assert total(model, "forward_us") == 36_000
    names = [segment.name for segment in read_pipedream(text, "v100", segments=4).segments]
    assert names == ["n1..n4", "n5..n6", "n7", "n8"]  # 18, 15, 9 and 10 ms, forward and backward
    with misuse("out-of-range segments"):
        read_pipedream(text, "v100", segments=0)


def paths(edges: set[tuple[int, int]], count: int) -> list[list[int]]:
    """All paths from a source to a sink, by walking every one."""
    after = {a: [b for x, b in sorted(edges) if x == a] for a in range(count)}
    done: list[list[int]] = []
    open_paths = [[a] for a in range(count) if all(b != a for _, b in edges)]
    while open_paths:
        path = open_paths.pop()
        done += [] if after[path[-1]] else [path]
        open_paths += [[*path, b] for b in after[path[-1]]]
    return done


@pytest.mark.parametrize("seed", range(30))
def test_cuts_are_the_nodes_on_all_paths(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 7)
    edges = {pair for pair in combinations(range(count), 2) if rng.random() < 0.45}
    while len(parts := parts_of(count, edges)) > 1:
        first, second = sorted((rng.choice(parts[0]), rng.choice(parts[1])))
        edges.add((first, second))
    order = rng.sample(range(count), count)
    text = graph([node(f"n{k}") for k in order], " ".join(f"n{a}-n{b}" for a, b in sorted(edges)))
    model = read_pipedream(text, "v100")
    common = set.intersection(*(set(path) for path in paths(edges, count)))
    ends = {segment.name.split("..")[-1] for segment in model.segments[:-1]}
    last = model.segments[-1].name.split("..")[-1]
    assert ends | ({last} & {f"n{k}" for k in common}) == {f"n{k}" for k in common}


def test_a_stage_that_a_partitioner_chose_changes_nothing() -> None:
    plain, chosen = ((DATA / "pipedream" / f"{name}.graph.txt").read_bytes() for name in ("base", "vlayer"))
    assert read_pipedream(chosen, "v100") == read_pipedream(plain, "v100")
    both = graph([node("n1") + " -- stage_id=2 -- vlayer_id=0", node("n2")], "n1-n2")
    assert read_pipedream(both, "v100") == read_pipedream(graph([node("n1"), node("n2")], "n1-n2"), "v100")


def test_times_may_have_an_exponent() -> None:
    model = read_pipedream(
        node("n1", forward="5.92e-05", activation="[1.5E+3; 2e2]") + "\n" + node("n2") + "\n\tn1 -- n2", "v100"
    )
    assert (total(model, "forward_us"), total(model, "activation_bytes")) == (1000, 1710)
    (found,) = problems(lambda: read_pipedream(node("n1", forward="1e99"), "v100"))[:1]
    assert "more than 2^53 - 1" in found[1]


def test_every_wrong_line_of_a_graph_is_reported() -> None:
    text = "\n".join(
        [
            node("n1"),
            "n2 -- Linear -- forward_compute_time=x, backward_compute_time=1, activation_size=1, parameter_size=1",
            node("n1"),
            "",
            node("n3", forward="99999999999999999999"),
            "\tn1 -- n9",
            "\tn1 - n1",
        ]
    )
    found = problems(lambda: read_pipedream(text, "v100", source="graph"))
    assert [path for path, _ in found] == ["graph:2", "graph:3", "graph:5", "graph:7", "graph:6"]
    assert "duplicate node n1" in found[1][1]
    assert "more than 2^53 - 1" in found[2][1]
    assert carries(found[4][1], "called", "n9")


def test_graphs_without_a_model() -> None:
    cycle = graph([node("a"), node("b"), node("c")], "a-b b-c c-b")
    [(path, message)] = problems(lambda: read_pipedream(cycle, "v100", source="g"))
    assert path in ("g:5", "g:6")
    assert "b" in message and "cycle" in message
    for text in ("", "\n", node("a", "Input"), node("a", forward="0")):
        assert problems(partial(read_pipedream, text, "v100", source="g"))[0][0] == "g"
    assert "not UTF-8" in problems(lambda: read_pipedream(b"\xff", "v100"))[0][1]


def test_a_graph_that_was_cut_off_is_in_parts() -> None:
    lines = DIAMOND.splitlines()
    for kept in (6, 7, 9):
        text = "\n".join(lines[:kept])
        for read in (partial(read_pipedream, text, "v100"), partial(read_layer_graph, text)):
            [(path, message)] = problems(partial(read, source="g"))
            assert path == "g" and carries(message, "parts", "joins")


def published(shared_data: Path, name: str) -> tuple[str, Path]:
    """The text of a published graph, and the table of what its suffixes cost."""
    folder = shared_data / "pipeline"
    dapple = name in DAPPLE
    path = folder / "dapple" / f"{name}.txt" if dapple else folder / "pipedream" / f"{name}.graph.txt"
    return path.read_text(), folder / "partial_backprop" / f"{'dapple_' if dapple else ''}{name}.csv"


@pytest.mark.parametrize("name", PIPEDREAM + DAPPLE)
def test_published_graphs_cost_what_the_table_says(shared_data: Path, name: str) -> None:
    text, table = published(shared_data, name)
    model = read_pipedream(text, "v100")
    whole, *cuts = csv.DictReader(table.open())
    assert total(model, "forward_us") == round(float(whole["forward_ms"]) * 1000)
    assert total(model, "backward_us") == round(float(whole["backward_ms"]) * 1000)
    assert total(model, "parameter_bytes") == int(whole["grad_bytes"])
    assert total(model, "activation_bytes") == int(whole["activation_bytes"])
    rows = {row["freeze_up_to"]: row for row in cuts}
    shared = 0
    for k, segment in enumerate(model.segments, 1):
        row = rows.get(segment.name.split("..")[-1])
        if row is not None:
            shared += 1
            assert sum(s.backward_us["v100"] for s in model.segments[k:]) == round(float(row["backward_ms"]) * 1000)
            assert sum(s.parameter_bytes for s in model.segments[k:]) == int(row["grad_bytes"])
    assert shared or len(cuts) <= 3  # the table of gnmt has hardly any cut, and edges jump over those
    assert is_valid(model)
    few = read_pipedream(text, "v100", segments=4)
    assert len(few.segments) == min(4, len(model.segments))
    for field in ("forward_us", "backward_us", "parameter_bytes", "activation_bytes"):
        assert total(few, field) == total(model, field)


# DeepPool

RUN = """
   conv2d{"in_channels":3,"kernel_size":3,"out_channels":8,"padding":1,"stride":2}[4][3,32,32]   0.020   19   1
   ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[4][8,16,16]   0.030   10   20
   maxPool2d{"kernel_size":2,"padding":0,"stride":2}[4][8,16,16]   0.003   1   2
   flatten{"kernel_size":1}[4][8,8,8]   0.003   1   2
   linear{"bias":true,"in_features":512,"out_features":10}[4]512   0.009   4   5
   SUM(avg)  1.0  2.0(NoSync)
"""


def test_a_deeppool_run() -> None:
    model = read_deeppool(RUN, "v100", 4)
    assert [segment.name for segment in model.segments] == ["conv2d0..ReLU2d1", "maxPool2d2", "flatten3", "linear4"]
    assert [segment.forward_us["v100"] for segment in model.segments] == [29, 1, 1, 4]
    assert [segment.backward_us["v100"] for segment in model.segments] == [21, 2, 2, 5]
    assert [segment.parameter_bytes for segment in model.segments] == [4 * 3 * 8 * 9, 0, 0, 4 * 5130]
    assert [segment.activation_bytes for segment in model.segments] == [4 * 4 * 2048, 4 * 4 * 512, 0, 4 * 4 * 10]
    assert is_valid(model)
    assert len(read_deeppool(RUN, "v100", 4, segments=2).segments) == 2


def test_layers_of_a_deeppool_run_send_what_the_next_one_reads() -> None:
    found = read_deeppool_layers(RUN, 4)
    assert [(layer.name, layer.output_bytes) for layer in found] == [
        ("conv2d0..ReLU2d1", 4 * 4 * 8 * 16 * 16),
        ("maxPool2d2", 4 * 4 * 8 * 8 * 8),
        ("flatten3", 4 * 4 * 512),
        ("linear4", None),
    ]
    assert found[0].modules == ("conv2d0", "ReLU2d1")
    model = read_deeppool(RUN, "v100", 4)
    assert [layer.time_us for layer in found] == [s.forward_us["v100"] + s.backward_us["v100"] for s in model.segments]


def test_a_bottleneck_has_the_parameters_of_torchvision() -> None:
    block = {"base_width": 64, "dilation": 1, "groups": 1, "inplanes": 64, "planes": 64, "stride": 1}
    block["downsampleParams"] = [[64, 256, 1], 256]  # type: ignore[assignment]
    model = read_deeppool(f"ResnetBottleneck{json.dumps(block)}[2][64,56,56] 1.0 1 1", "v100", 2)
    assert total(model, "parameter_bytes") == 4 * 75_008  # layer1[0] of resnet50
    assert total(model, "activation_bytes") == 4 * 2 * 56 * 56 * (4 * 64 + 4 * 256)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('"stride":2}[4][3', '"stride":2}[4][4', 2, "the input must be [3,H,W]; is [4, 32, 32]"),
        ('"in_channels":3,', "", 2, "parameter 'in_channels' is missing"),
        ('"kernel_size":3', '"kernel_size":"3"', 2, "parameter 'kernel_size' must be an integer"),
        ('"kernel_size":3', '"kernel_size":99', 2, "the window is larger than the input"),
        ('"kernel_size":3', '"kernel_size":', 2, "Expecting value"),
        ("maxPool2d", "minPool2d", 4, "unknown type"),
        ("512   0.009", "513   0.009", 6, "the input must be 512 features"),
        ("[4]512", "[8]512", 6, "batch size 8 in a run of batch size 4"),
        ("0.003   1   2", "0.003   1", 4, "no layer with its three times"),
    ],
)
def test_wrong_lines_of_a_deeppool_profile(old: str, new: str, line: int, message: str) -> None:
    [(path, found)] = problems(lambda: read_deeppool(RUN.replace(old, new, 1), "v100", 4, source="p"))
    assert path == f"p:{line}"
    assert message in found


def test_a_run_that_is_cut_off_is_no_shorter_model() -> None:
    larger = RUN.replace("[4]", "[8]").replace("}[4]512", "}[8]512")
    cut = larger[: larger.index("   flatten")]
    with refuses("damaged p:11", naming=["size 8", "SUM"]):
        read_deeppool(RUN + cut, "v100", 8, source="p")
    assert read_deeppool(RUN + cut, "v100", 4) == read_deeppool(RUN, "v100", 4)
    assert read_deeppool(RUN.partition("   SUM")[0], "v100", 4) == read_deeppool(RUN, "v100", 4)


def test_a_network_that_branches_is_refused_in_one_sentence() -> None:
    convolution = (
        '  conv2d{"in_channels":8,"kernel_size":1,"out_channels":4,"padding":0,"stride":1}[4][8,9,9]  0.4  9  3'
    )
    pool = '  avgPool2d{"kernel_size":3,"padding":1,"stride":1}[4][8,9,9]  1.0  2  7'
    text = "\n".join([convolution, convolution, pool, "sum:   1.80"] * 400)
    for read in (lambda: read_deeppool_layers(text, 4, source="p"), lambda: read_deeppool_runs(text, source="p")):
        assert problems(read) == [
            ("p:2", "the network branches: conv2d reads [8, 9, 9] and the layer before puts out [4, 9, 9]")
        ]
    assert len(read_deeppool_layers(f"{convolution}\nsum:  0.4\n", 4)) == 1


def test_which_batch_sizes_there_are() -> None:
    with refuses("wrong-count layers.prof", naming=["0 runs", "size 5", "here: 4"]):
        read_deeppool(RUN, "v100", 5)
    with refuses("wrong-count layers.prof", naming=["2 runs", "size 4"]):
        read_deeppool(RUN + RUN, "v100", 4)
    with refuses("wrong-count layers.prof", naming=["size 4", "none"]):
        read_deeppool("", "v100", 4)


@pytest.mark.parametrize(("name", "batch", "parameters"), [("vgg", 32, 138_353_320), ("wrn", 32, 126_886_568)])
def test_published_deeppool_profiles(shared_data: Path, name: str, batch: int, parameters: int) -> None:
    """Times are those of the lines.

    DeepPool's own tables keep one line for all layers of the same shape, which hardly changes the forward time but
    counts 7 ms of backward time too much for vgg16, where a ReLU carries the time of the convolution before it.
    Parameters are those of torchvision's models less what the profile leaves out: the biases of the convolutions of
    vgg16 (4 224) and the first batch normalisation of wide_resnet101_2 (128).
    """
    folder = shared_data / "pipeline" / "deeppool"
    text = (folder / f"A100_{name}.prof").read_text()
    model = read_deeppool(text, "v100", batch, source=name)
    times = [tuple(map(int, line.split()[-2:])) for line in text.splitlines() if f"[{batch}]" in line]
    assert total(model, "forward_us") == sum(forward for forward, _ in times)
    assert total(model, "backward_us") == sum(backward for _, backward in times)
    costs = json.loads((folder / f"costs_{name}_g2_b{batch}_bw12500.json").read_text())
    alone = [next(config for config in layer["configs"] if config["gpus"] == 1) for layer in costs["layers"]]
    assert len(alone) == len(times)
    assert total(model, "forward_us") == pytest.approx(sum(config["fwd_us"] for config in alone), rel=1e-3)
    assert total(model, "parameter_bytes") == 4 * parameters
    assert is_valid(model)

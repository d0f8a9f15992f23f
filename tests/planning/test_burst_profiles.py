"""Costs of bursts out of DeepPool's profiles: by hand, and beside documents of costs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstLayer, read_burst_costs
from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.burst import BurstSetting, exact_plan, measured_costs, profiled_costs, released_plan
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from tests.refusals import misuse, refuses

CONVOLUTION = 'conv2d{"in_channels":3,"kernel_size":3,"out_channels":4,"padding":1,"stride":2}'
RELU = 'ReLU2d{"inplace":true}'
LINEAR = 'linear{"bias":true,"in_features":64,"out_features":10}'


def run(batch: int, *times: int) -> str:
    names = (f"{CONVOLUTION}[{batch}][3,8,8]", f"{RELU}[{batch}][4,4,4]", f"{RELU}[{batch}][4,4,4]")
    layers = (*names, f"{LINEAR}[{batch}]64")
    return "".join(f"{layer} {time / 1000} {time} 0\n" for layer, time in zip(layers, times, strict=True)) + "SUM 1\n"


PROFILE = run(4, 400, 100, 140, 60) + run(2, 240, 60, 80, 50) + run(1, 150, 40, 50, 45)


def test_costs_follow_from_shapes_and_times() -> None:
    costs = profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(4, 4, 10.0))
    convolution, relu, _, linear = costs.layers
    assert [layer.name for layer in costs.layers] == ["conv2d", "ReLU2d", "ReLU2d", "linear"]
    assert [(option.gpus, option.gpu_us, option.sync_us) for option in convolution.options] == [
        (1, 400, 0),
        (2, 240, pytest.approx(3 * 4 * 9 * 4 / 10)),
        (4, 150, pytest.approx(3 * 4 * 9 * 4 / 10)),
    ]
    assert convolution.transfer_us == ()
    assert linear.options[1].sync_us == pytest.approx(650 * 4 / 10)
    assert linear.transfer_us[0] == pytest.approx((0, 2 * (2 * 64 * 4 / 10 + 40), 2 * (3 * 64 * 4 / 10 + 40)))
    assert relu.transfer_us[2][1] == pytest.approx(1000 * 2 * (64 * 4 / 10 + 40))
    assert [layer.single_gpu_us for layer in costs.layers] == [400, 100, 140, 60]


def graph(batch: int | None, *times: int, **options: Any) -> LayerGraph:
    names = [MeasuredLayer(f"n{at}", time, time, 100 * at, 1, None, 40 * (batch or 1)) for at, time in enumerate(times)]
    return LayerGraph(tuple(names), chain_edges(len(names)), batch, **options)


def test_costs_follow_from_layer_profiles_of_several_batches() -> None:
    graphs = [graph(4, 200, 70), graph(1, 80, 50, gpu_type="a100"), graph(2, 120, 60)]
    first, last = measured_costs(graphs, BurstSetting(4, 4, 10.0)).layers
    assert [(option.gpus, option.gpu_us, option.forward_us, option.sync_us) for option in last.options] == [
        (1, 140, 70, 0),
        (2, 120, 60, 100 / 10),
        (4, 100, 50, 100 / 10),
    ]
    assert first.transfer_us == () and [option.sync_us for option in first.options] == [0, 0, 0]
    assert last.transfer_us[2] == pytest.approx((2 * (3 * 40 / 10 + 40), 2 * (40 / 10 + 40), 0))
    assert [layer.single_gpu_us for layer in (first, last)] == [400, 140]


def test_layer_profiles_that_are_none_of_one_chain_are_refused() -> None:
    branching = replace(graph(2, 1, 1), edges=())
    other = replace(graph(2, 1, 2), gpu_type="b", layers=graph(2, 1).layers)
    with pytest.raises(UsageError) as caught:
        measured_costs([graph(None, 1, 1, gpu_type="a"), branching, other], BurstSetting(4, 4, 10.0, released=True))
    for told in ("released costs", "does not say", "the same batch: 2, 2", "different layers", "GPUs: a, b", "branch"):
        assert told in str(caught.value)
    with misuse("unknown-value batch"):
        measured_costs([graph(8, 1, 1)], BurstSetting(4, 4, 10.0))


def test_released_costs_share_times_and_count_few_weights() -> None:
    costs = profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(4, 4, 10.0, released=True))
    assert [layer.single_gpu_us for layer in costs.layers] == pytest.approx([400 + 3 * 5 * 4 / 10, 140, 140, 60])
    assert [option.sync_us for option in costs.layers[0].options] == pytest.approx([3 * 5 * 4 / 10] * 3)


def test_a_batch_too_large_for_one_gpu_takes_it_several_times() -> None:
    costs = profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(16, 16, 10.0))
    assert [option.gpus for option in costs.layers[0].options] == [4, 8, 16]
    assert costs.layers[0].single_gpu_us == 4 * 400
    assert [
        option.gpus
        for option in profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(3, 4, 10.0)).layers[0].options
    ] == [
        1,
        2,
    ]
    with misuse("unknown-value batch"):
        profiled_costs(read_deeppool_runs(PROFILE), BurstSetting(2, 64, 10.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROFILE + run(2, 1, 1, 1, 1), "duplicate-name layers.prof:16"),
        (PROFILE + f"{RELU}[8][4,4,4] 1 1 1\n", "mismatch layers.prof:16"),
        ("SUM 1\n", "empty layers.prof"),
        (PROFILE.replace("conv2d", "conv9d", 1), "malformed layers.prof:1"),
    ],
)
def test_wrong_profiles_are_named(text: str, message: str) -> None:
    with refuses(message):
        read_deeppool_runs(text)


def same(one: BurstLayer, other: BurstLayer) -> None:
    """Equal costs, but for what moves between a convolution and its ReLU, which both put out of reach."""
    assert (one.name, one.single_gpu_us) == (other.name, pytest.approx(other.single_gpu_us))
    for own, theirs in zip(one.options, other.options, strict=True):
        assert (own.gpus, own.gpu_us) == (theirs.gpus, pytest.approx(theirs.gpu_us))
        assert own.sync_us == pytest.approx(theirs.sync_us)
    rows = zip(one.transfer_us, other.transfer_us, strict=True)
    for own_us, their_us in ((a, b) for row, other_row in rows for a, b in zip(row, other_row, strict=True)):
        assert own_us == pytest.approx(their_us) or (one.name == "ReLU2d" and min(own_us, their_us) > 50_000)


def test_released_costs_are_those_of_the_documents(shared_data: Path) -> None:
    folder = shared_data / "pipeline" / "deeppool"
    documents = sorted(folder.glob("costs_*.json"))
    assert len(documents) == 24
    for path in documents:
        match = re.fullmatch(r"costs_(\w+)_g(\d+)_b(\d+)_bw(\d+)", path.stem)
        assert match
        runs = read_deeppool_runs((folder / f"A100_{match[1]}.prof").read_bytes())
        costs = profiled_costs(runs, BurstSetting(int(match[2]), int(match[3]), float(match[4]), released=True))
        theirs = read_burst_costs(path.read_bytes())
        for one, other in zip(costs.layers, theirs.layers, strict=True):
            same(one, other)
        for plan in (exact_plan, released_plan):
            assert plan(costs, 2.0).choice == plan(theirs, 2.0).choice

"""Estimated profiles: known parameter counts, the roofline, and how units are shared out."""

from __future__ import annotations

from fractions import Fraction

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances import profile
from jigsaw_opt.instances.architectures import ARCHITECTURES
from jigsaw_opt.instances.gpus import GPU_TYPES
from jigsaw_opt.instances.layers import Unit, attention, conv, embedding, linear
from jigsaw_opt.instances.profiles import estimate_layers


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", 25_557_032),
        ("vgg16", 138_357_544),
        ("bert_large", 336_226_108),
        ("gpt2_small", 124_439_808),
        ("gpt2_medium", 354_823_168),
    ],
)
def test_parameter_counts_are_those_of_the_architectures(name: str, parameters: int) -> None:
    assert sum(unit.parameters for unit in ARCHITECTURES[name]()) == parameters
    assert profile(name, 8, ["v100"], 4).state_bytes == 4 * 4 * parameters


@pytest.mark.parametrize(("name", "multiply_adds"), [("resnet50", 4.1e9), ("vgg16", 15.5e9)])
def test_operations_of_a_forward_pass_are_those_in_the_literature(name: str, multiply_adds: float) -> None:
    flops = sum(unit.flops for unit in ARCHITECTURES[name]())
    assert flops / 2 == pytest.approx(multiply_adds, rel=0.02)


def test_layers_are_counted_from_their_shapes() -> None:
    layer = conv(3, 64, 7, 224, stride=2)
    assert (layer.parameters, layer.flops) == (9408, 2 * 9408 * 112 * 112)
    assert linear(10, 5, rows=3, tied=True).parameters == 5


def test_roofline_is_the_slower_of_arithmetic_and_memory() -> None:
    v100 = GPU_TYPES["v100"]
    assert v100.layer_us(50 * 10**6, 0) == 1  # 40 % of 125 TFLOP/s
    assert v100.layer_us(50 * 10**6, 9 * 10**6) == 10  # 900 GB/s
    assert v100.layer_us(1, 0) == Fraction(1, 50 * 10**6)


def test_layers_are_units_whose_weights_take_a_share_of_the_backward_pass() -> None:
    gpu, units = GPU_TYPES["v100"], ARCHITECTURES["vgg16"]()
    found = estimate_layers(units, 4, "v100", gpu)
    segments = profile("vgg16", 4, ["v100"], len(units)).segments
    for each, segment in zip(found, segments, strict=True):
        assert (each.name, each.parameter_bytes) == (segment.name, segment.parameter_bytes)
        assert (each.forward_us, each.backward_us) == (segment.forward_us["v100"], segment.backward_us["v100"])
        assert each.activation_bytes == segment.activation_bytes
    dense = [Unit("dense", (linear(1000, 1000, 1000),)), Unit("tokens", (embedding(5, 1000, 1000),))]
    one, table = estimate_layers([*dense, Unit("attention", (attention(64, 4, 100),))], 4, "v100", gpu)[:2]
    assert one.weight_us == one.forward_us and one.output_bytes == 2 * 4 * 1000 * 1000
    assert table.weight_us == table.backward_us
    assert estimate_layers([Unit("attention", (attention(64, 4, 100),))], 4, "v100", gpu)[0].weight_us == 0


def test_newer_gpus_are_faster_and_larger_batches_slower() -> None:
    model = profile("bert_large", 16, ["v100", "a100", "h200"], 4)
    v100, a100, h200 = (model.block_us(t)[-1] for t in model.gpu_types)
    assert v100 > a100 > h200 > 0
    assert profile("bert_large", 32, ["v100"], 4).block_us("v100")[-1] > v100


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_number_of_segments_shares_out_all_units(name: str) -> None:
    count = len(ARCHITECTURES[name]())
    for segments in range(1, count + 1):
        model = profile(name, 4, ["v100"], segments)
        assert len(model.segments) == segments
        assert all(segment.forward_us["v100"] >= 1 for segment in model.segments)
        assert sum(model.bucket_bytes()) * 4 == model.state_bytes
    halves = profile(name, 64, ["v100"], 2).segments
    assert min(s.forward_us["v100"] for s in halves) > max(s.forward_us["v100"] for s in halves) / 3


@pytest.mark.parametrize(
    "arguments",
    [("lenet", 1, ["v100"], 1), ("vgg16", 1, ["k80"], 1), ("vgg16", 0, ["v100"], 1), ("vgg16", 1, [], 1)]
    + [("vgg16", 1, ["v100"], segments) for segments in (0, 17)],
)
def test_what_cannot_be_profiled_is_refused(arguments: tuple[str, int, list[str], int]) -> None:
    with pytest.raises(UsageError):
        profile(*arguments)

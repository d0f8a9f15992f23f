"""Efficiency of models in documents, and what iterations are worth (specification: efficiency)."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents import InstanceBuilder, decode_instance, encode_instance, instance_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Efficiency, FreeDepth, Instance, Segment
from tests.refusals import refuses


def test_it_is_written_only_if_given_and_changes_the_hash(pair: Instance) -> None:
    assert b"efficiency" not in encode_instance(pair)
    net = replace(pair.models["net"], efficiency=Efficiency((0, 4000), (1, 3)))
    known = replace(pair, models={**pair.models, "net": net})
    assert decode_instance(encode_instance(known)) == known
    assert json.loads(encode_instance(known))["models"]["net"]["efficiency"] == {
        "noise_scale": [0, 4000],
        "weight": [1, 3],
    }
    assert instance_sha256(known) != instance_sha256(pair)


@pytest.mark.parametrize(
    ("efficiency", "path", "code"),
    [
        ({"noise_scale": [1], "weight": [1, 1]}, "noise_scale", "wrong-count"),
        ({"noise_scale": [1, 2], "weight": [1, 1, 1]}, "weight", "wrong-count"),
        ({"noise_scale": [1, 2], "weight": [0, 0]}, "weight", "out-of-range"),
        ({"noise_scale": [1, -2], "weight": [1, 0]}, "noise_scale[1]", "out-of-range"),
        ({"noise_scale": [1, 2]}, "", "missing-field"),
    ],
)
def test_what_is_wrong_is_told(pair_path: Path, efficiency: dict[str, Any], path: str, code: str) -> None:
    tree = json.loads(pair_path.read_bytes())
    tree["models"]["net"]["efficiency"] = efficiency
    with refuses(f"{code} $.models.net.efficiency{path and '.'}{path}"):
        decode_instance(json.dumps(tree))


def test_a_part_checks_its_efficiency(pair: Instance) -> None:
    with refuses("wrong-type Model.efficiency", naming=("an Efficiency",)):
        replace(pair.models["net"], efficiency={})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="must have 2 items"):
        replace(pair.models["net"], efficiency=Efficiency((1,), (1,)))


def limited(pair: Instance, share: int | str, efficiency: Efficiency | None) -> Instance:
    """The pair of jobs, with a limit of the first one's progress."""
    net = replace(pair.models["net"], efficiency=efficiency)
    job = replace(pair.jobs[0], depth=FreeDepth(min_progress=share))
    return replace(pair, models={**pair.models, "net": net}, jobs=(job, *pair.jobs[1:]))


def test_a_limit_of_progress_is_written_only_if_given_and_as_given(pair: Instance) -> None:
    assert b"min_progress" not in encode_instance(pair)
    found = set()
    for share in ("19/20", "019/20", 1, "1/1"):
        instance = limited(pair, share, Efficiency((0, 4000), (1, 3)))
        assert decode_instance(encode_instance(instance)) == instance
        found.add(instance_sha256(instance))
    assert len(found) == 4


def test_a_limit_of_progress_asks_for_an_efficiency(pair: Instance, pair_path: Path) -> None:
    with refuses("contradiction $.jobs[0].depth.min_progress"):
        limited(pair, 1, None)
    tree = json.loads(pair_path.read_bytes())
    tree["jobs"][0]["depth"] = {"rule": "free", "min_progress": "1/2"}
    with refuses("contradiction $.jobs[0].depth.min_progress"):
        decode_instance(json.dumps(tree))
    tree["models"]["net"]["efficiency"] = {"noise_scale": [1, 1], "weight": [1, 1]}
    tree["jobs"][0]["depth"] = {"rule": "free", "min_progress": -1}
    with refuses("out-of-range $.jobs[0].depth.min_progress"):
        decode_instance(json.dumps(tree))


def test_the_limit_takes_the_place_of_the_mean_depth() -> None:
    assert FreeDepth().mean(2) == Fraction(3, 4)
    assert FreeDepth(min_progress="1/2").mean(2) == 0
    assert FreeDepth(min_progress="1/2", mean_depth="2/3").mean(2) == Fraction(2, 3)


def test_a_builder_takes_both_forms() -> None:
    built = []
    for efficiency in (Efficiency((5,), (1,)), {"noise_scale": [5], "weight": [1]}):
        builder = InstanceBuilder("one")
        builder.add_server("s", gpu_type="v", gpus=1, gpu_memory=100, fabric_bandwidth=1)
        builder.add_model("net", [Segment("x", {"v": 1}, {"v": 1}, 0, 0)], efficiency=efficiency)
        builder.add_job("j", model="net", workers=1, iterations=1)
        built.append(builder.build())
    assert built[0] == built[1] and built[0].models["net"].efficiency == Efficiency((5,), (1,))


def test_progress_is_that_of_the_formula_rounded_down_by_bucket() -> None:
    efficiency, workers = Efficiency((0, 1234, 10**9), (2, 0, 5)), 3
    for levels in product((1, 2, 3), repeat=workers):
        expected = 0
        for bucket, (noise, weight) in enumerate(zip((0, 1234, 10**9), (2, 0, 5), strict=True), 1):
            count = sum(level >= bucket for level in levels)
            scale = Fraction(noise, 1000)
            share = Fraction(count) * (workers + scale) / (workers * (count + scale)) if count else Fraction(0)
            expected += weight * int(10**6 * share)
        assert efficiency.progress(levels) == expected <= efficiency.most
    assert efficiency.progress((3, 3, 3)) == efficiency.most == 7 * 10**6


def test_the_example_of_the_specification() -> None:
    efficiency = Efficiency((0, 4000), (1, 1))
    assert Fraction(efficiency.progress((2, 1, 1, 1)), efficiency.most) == Fraction(7, 10)

"""Power caps, licences and efficiency in documents: what is written, what the hash sees, and what is wrong."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents import InstanceBuilder, decode_instance, encode_instance, instance_sha256
from jigsaw_opt.documents.encoding import canonical_json
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Efficiency, FreeDepth, Instance, Segment, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.problem.power import PowerCap
from tests.refusals import refuses

BLOCK = {"name": "B", "slot": "x", "duration_us": {"v100": 1}, "power_w": {"v100": 250}}


def tree(pair_path: Path, **more: Any) -> dict[str, Any]:
    """The example of two jobs, with caps and watts as given."""
    found: dict[str, Any] = json.loads(pair_path.read_bytes())
    found["cluster"].update({"power_caps": more["caps"]} if "caps" in more else {})
    found["models"]["net"].update({"power_w": more["watts"]} if "watts" in more else {})
    return copy.deepcopy(found)


def cap(**more: Any) -> dict[str, Any]:
    return {"name": "room", "servers": ["s0"], "watts": 600, **more}


def test_caps_and_watts_are_in_the_canonical_form_only_if_given_and_as_given(pair: Instance) -> None:
    assert b"power" not in canonical_json(pair)
    models = {"net": replace(pair.models["net"], power_w={"v100": 300, "k80": 0})}
    block = TaskGraphBlock("B", ("x",), {"v100": 1}, {"v100": 250})
    jobs = (*pair.jobs, TaskGraphJob("p", TaskGraph((Slot("x"),), (block,)), 1))
    caps = (PowerCap("room", ("s0",), 600),)
    capped = replace(pair, cluster=replace(pair.cluster, power_caps=caps), models=models, jobs=jobs)
    written = canonical_json(capped)
    for stated in (
        b'"power_caps":[{"name":"room","servers":["s0"],"watts":600}]',
        b'"power_w":{"k80":0,"v100":300}',
        b'"power_w":{"v100":250}',
    ):
        assert stated in written
    assert decode_instance(encode_instance(capped)) == capped == replace(capped)
    none = replace(pair, cluster=replace(pair.cluster, power_caps=()))
    assert b'"power_caps":[]' in canonical_json(none) and instance_sha256(none) != instance_sha256(pair)


@pytest.mark.parametrize(
    ("caps", "path", "code"),
    [
        ([cap(watts=0)], "$.cluster.power_caps[0].watts", "out-of-range"),
        ([cap(servers=[])], "$.cluster.power_caps[0].servers", "wrong-count"),
        ([cap(servers=["s0", "s0"])], "$.cluster.power_caps[0].servers[1]", "duplicate-name"),
        ([cap(servers=["s"])], "$.cluster.power_caps[0].servers[0]", "unknown-name"),
        ([cap(), cap()], "$.cluster.power_caps[1].name", "duplicate-name"),
        ([cap(servers="s0")], "$.cluster.power_caps[0].servers", "wrong-type"),
        ([7], "$.cluster.power_caps[0]", "wrong-type"),
        ({}, "$.cluster.power_caps", "wrong-type"),
    ],
)
def test_a_wrong_cap_is_one_problem(pair_path: Path, caps: object, path: str, code: str) -> None:
    with refuses(f"{code} {path}"):
        decode_instance(json.dumps(tree(pair_path, caps=caps)))


@pytest.mark.parametrize("watts", [-1, 1.5, None, True, "300"])
def test_watts_are_integers_from_0(pair_path: Path, watts: object) -> None:
    document = tree(pair_path, watts={"v100": watts})
    shape = {"slots": [{"name": "x"}], "blocks": [{**BLOCK, "power_w": {"v100": watts}}]}
    document["jobs"].append({"name": "p", "iterations": 1, "shape": shape})
    with pytest.raises(InvalidInputError) as caught:
        decode_instance(json.dumps(document))
    assert [problem.path for problem in caught.value.problems] == [
        "$.models.net.power_w.v100",
        "$.jobs[2].shape.blocks[0].power_w.v100",
    ]


def test_an_instance_is_built_with_caps_and_licences() -> None:
    builder = InstanceBuilder("built")
    builder.add_server("s0", gpu_type="v", gpus=1, gpu_memory=0, fabric_bandwidth=1)
    builder.add_power_cap("room", ["s0"], watts=300)
    builder.add_licence("tool", 2)
    builder.add_model("net", [Segment("x", {"v": 1}, {"v": 1}, 0, 0)], power_w={"v": 300})
    builder.add_job("a", model="net", workers=1, iterations=1, licences=["tool"])
    built = builder.build()
    assert built.cluster.licences == {"tool": 2} and built.jobs[0].licences == ("tool",)
    assert built.cluster.power_caps == (PowerCap("room", ("s0",), 300),)
    assert built.models["net"].power_w == {"v": 300}
    again = InstanceBuilder("again")
    again.add_cluster(built.cluster)
    again.add_models(built.models)
    again.add_job("a", model="net", workers=1, iterations=1, licences=built.jobs[0].licences)
    assert replace(again.build(), name="built") == built


def test_licences_are_in_the_canonical_form_only_if_given_and_as_given(pair: Instance) -> None:
    assert b"licences" not in canonical_json(pair)
    graph = TaskGraphJob("p", TaskGraph((Slot("x"),), (TaskGraphBlock("B", ("x",), {"v100": 1}),)), 1, licences=())
    jobs = (replace(pair.jobs[0], licences=("tool", "data")), pair.jobs[1], graph)
    licensed = replace(pair, cluster=replace(pair.cluster, licences={"tool": 2, "data": 0}), jobs=jobs)
    written = canonical_json(licensed)
    for stated in (b'"licences":{"data":0,"tool":2}', b'"licences":["tool","data"]', b'"licences":[],"name":"p"'):
        assert stated in written
    assert decode_instance(encode_instance(licensed)) == licensed == replace(licensed)
    assert hash(licensed) != hash(pair) and instance_sha256(licensed) != instance_sha256(pair)


@pytest.mark.parametrize(
    ("counts", "named", "problem"),
    [
        ({"tool": -1}, ["tool"], "out-of-range $.cluster.licences.tool"),
        ({"tool": "2"}, ["tool"], "wrong-type $.cluster.licences.tool"),
        ([], ["tool"], "wrong-type $.cluster.licences"),
        ({"a/b": 1}, [], 'malformed $.cluster.licences["a/b"]'),
        ({"tool": 1}, ["tol"], "unknown-name $.jobs[0].licences[0]"),
        (None, ["tool"], "unknown-name $.jobs[0].licences[0]"),
        ({"tool": 1}, ["tool", "tool"], "duplicate-name $.jobs[0].licences[1]"),
        ({"tool": 1}, "tool", "wrong-type $.jobs[0].licences"),
        ({"tool": 1}, [7], "wrong-type $.jobs[0].licences[0]"),
    ],
)
def test_a_wrong_licence_is_one_problem(pair_path: Path, counts: object, named: object, problem: str) -> None:
    document: dict[str, Any] = json.loads(pair_path.read_bytes())
    document["cluster"] |= {} if counts is None else {"licences": counts}
    document["jobs"][0]["licences"] = named
    with refuses(problem):
        decode_instance(json.dumps(document))


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

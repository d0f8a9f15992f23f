"""Power caps in documents: what is written, what the hash sees, and what is wrong."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents import InstanceBuilder, decode_instance, encode_instance, instance_sha256
from jigsaw_opt.documents.encoding import canonical_json
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Instance, Segment, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
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


def test_an_instance_is_built_with_caps() -> None:
    builder = InstanceBuilder("built")
    builder.add_server("s0", gpu_type="v", gpus=1, gpu_memory=0, fabric_bandwidth=1)
    builder.add_power_cap("room", ["s0"], watts=300)
    builder.add_model("net", [Segment("x", {"v": 1}, {"v": 1}, 0, 0)], power_w={"v": 300})
    builder.add_job("a", model="net", workers=1, iterations=1)
    built = builder.build()
    assert built.cluster.power_caps == (PowerCap("room", ("s0",), 300),)
    assert built.models["net"].power_w == {"v": 300}
    again = InstanceBuilder("again")
    again.add_cluster(built.cluster)
    again.add_models(built.models)
    again.add_job("a", model="net", workers=1, iterations=1)
    assert replace(again.build(), name="built") == built

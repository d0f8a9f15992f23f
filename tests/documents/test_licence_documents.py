"""Licences in documents: what is written, what the hash sees, and what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents import InstanceBuilder, decode_instance, encode_instance, instance_sha256
from jigsaw_opt.documents.encoding import canonical_json
from jigsaw_opt.problem import Instance, Segment, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from tests.refusals import refuses


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


def test_an_instance_is_built_with_licences() -> None:
    builder = InstanceBuilder("built")
    builder.add_server("s0", gpu_type="v", gpus=1, gpu_memory=0, fabric_bandwidth=1)
    builder.add_licence("tool", 2)
    builder.add_model("net", [Segment("x", {"v": 1}, {"v": 1}, 0, 0)])
    builder.add_job("a", model="net", workers=1, iterations=1, licences=["tool"])
    built = builder.build()
    assert built.cluster.licences == {"tool": 2} and built.jobs[0].licences == ("tool",)
    again = InstanceBuilder("again")
    again.add_cluster(built.cluster)
    again.add_models(built.models)
    again.add_job("a", model="net", workers=1, iterations=1, licences=built.jobs[0].licences)
    assert replace(again.build(), name="built") == built

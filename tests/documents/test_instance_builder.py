"""Instances built and changed in Python: validated as documents are, all problems at once."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt import (
    FreeDepth,
    Instance,
    InstanceBuilder,
    InvalidInputError,
    Model,
    Segment,
    StaircaseDepth,
    TaskGraph,
    change_bandwidth,
    load_instance,
    remove_job,
)
from jigsaw_opt.documents import encode_model, make_folder
from jigsaw_opt.documents.file_bytes import unpacked_head
from jigsaw_opt.documents.files import exists
from jigsaw_opt.problem import Link, Slot, TaskGraphBlock
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from tests.refusals import misuse, refuses

PAIR = Path(__file__).parents[1] / "data" / "pair.json"
BODY = Segment("body", {"v100": 300}, {"v100": 600}, 1_000_000, 40_000_000)
HEAD = Segment("head", {"v100": 100}, {"v100": 200}, 4_000_000, 1_000_000)


def begun(**whole: Any) -> InstanceBuilder:
    """The cluster and the model of the example."""
    builder = InstanceBuilder("pair", **whole)
    builder.add_server("s0", gpu_type="v100", gpus=2, gpu_memory=16 * 10**9, fabric_bandwidth=10**10)
    builder.add_model("net", [BODY, HEAD])
    return builder


def refusal(builder: InstanceBuilder) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        builder.build()
    return caught.value


def problems(builder: InstanceBuilder) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in refusal(builder).problems]


def test_the_example_is_built_as_it_is_read() -> None:
    builder = begun()
    builder.add_job("a", model="net", workers=2, iterations=1, depth=StaircaseDepth())
    builder.add_job("b", model="net", workers=1, iterations=1)
    assert builder.build() == load_instance(PAIR)


def test_all_problems_come_at_once_with_their_paths() -> None:
    shape = TaskGraph((Slot("one"),), (TaskGraphBlock("F", ("one",), {"v100": 1}),))
    builder = begun()
    builder.add_server("s0", gpu_type="v100", gpus=-1, gpu_memory=1, fabric_bandwidth=1)
    builder.add_link("l", ("s0", "s9"), bandwidth=0)
    builder.add_route_policy("shortest", RoutePolicy(via=(("nowhere",),)))
    builder.add_model("net", [BODY])
    builder.add_job("a", model="nett", workers=-2, iterations=True, route_policy="shortes")
    builder.add_job("a", model="net", workers=1, iterations=1, depth=FreeDepth(mean_depth="x"), restart_us=0)
    builder.add_task_graph_job("b", shape, iterations=1, deadline_us=0, pace_us=9, restart_us=-1)
    told = problems(builder)
    for part in (
        "$.models.net: duplicate key",
        '$.cluster.servers[1].name: duplicate name "s0"',
        "$.cluster.servers[1].gpus: must be an integer",
        '$.cluster.links[0].ends[1]: no server or switch is called "s9"',
        "$.cluster.links[0].bandwidth: must be an integer",
        "$.cluster.route_policies.shortest.via[0][0]: ",
        '$.jobs[0].model: no model is called "nett"',
        "$.jobs[0].workers: must be an integer",
        "$.jobs[0].iterations: must be an integer",
        '$.jobs[0].route_policy: no route policy is called "shortes"',
        '$.jobs[1].name: duplicate name "a"',
        "$.jobs[1].depth.mean_depth: ",
        "$.jobs[2].deadline_us: ",
        "$.jobs[2].restart_us: ",
        "$.jobs[2].pace_us: ",
    ):
        assert any(line.startswith(part) for line in told), (part, told)


def test_values_of_the_wrong_type_are_problems() -> None:
    builder = InstanceBuilder("wrong", horizon="endless")  # type: ignore[arg-type]
    builder.add_model("m", ["segment"])  # type: ignore[list-item]
    builder.add_models({3: Model((BODY,))})  # type: ignore[dict-item]
    builder.add_job("a", model=5, workers=1.0, iterations=Decimal(2), depth="deep")  # type: ignore[arg-type]
    places = {line.partition(": ")[0] for line in problems(builder)}
    assert places >= {
        "$.horizon",
        "$.cluster.servers",
        "$.models.m.segments[0]",
        '$.models["3"]',
        "$.jobs[0].model",
        "$.jobs[0].depth",
        "$.jobs[0].workers",
        "$.jobs[0].iterations",
    }


def test_integers_of_other_types_are_integers() -> None:
    numpy = pytest.importorskip("numpy")

    class Size(IntEnum):
        SMALL = 1

    builder = begun()
    builder.add_job("a", model="net", workers=numpy.int64(2), iterations=Size.SMALL)
    (job,) = builder.build().jobs
    assert (type(job.workers), type(job.iterations)) == (int, int)


def test_the_objective_of_a_horizon_need_not_be_named() -> None:
    for horizon, objective in (("finite", "makespan"), ("cyclic", "period")):
        builder = begun(horizon=horizon)
        builder.add_job("a", model="net", workers=1, iterations=1)
        assert builder.build().objective == objective


def test_what_is_added_later_changes_no_instance_built_before() -> None:
    builder, times = begun(), {"v100": 5}
    builder.add_model("late", [Segment("s", times, times, 0, 0)])
    builder.add_job("a", model="net", workers=1, iterations=1)
    first = builder.build()
    builder.add_job("b", model="late", workers=1, iterations=1)
    times["v100"] = 6
    assert len(first.jobs) == 1 and first.models["late"].segments[0].forward_us == {"v100": 5}
    assert len(builder.build().jobs) == 2


def test_models_are_taken_whole() -> None:
    whole = Model((BODY, HEAD), levels=(2,), state_factor=3, executor={"zoo": "mlp", "arguments": {}, "batch_size": 4})
    tree = json.loads(encode_model(whole))
    builder = InstanceBuilder("whole")
    builder.add_server("s", gpu_type="v100", gpus=1, gpu_memory=10**10, fabric_bandwidth=1)
    builder.add_model("object", whole)
    builder.add_model("file", tree)
    builder.add_model("report", {"device": "cpu", "model": tree, "profile": None})
    builder.add_model("changed", tree, state_factor=5)
    builder.add_job("a", model="file", workers=1, iterations=1)
    models = builder.build().models
    assert models == {"object": whole, "file": whole, "report": whole, "changed": replace(whole, state_factor=5)}


@pytest.mark.parametrize("segments", [None, 3, True])
def test_what_is_no_list_of_segments_is_told_with_the_rest(segments: Any) -> None:
    builder = InstanceBuilder("none")
    builder.add_model("m", segments)
    with refuses("wrong-count $.cluster.servers; wrong-type $.models.m.segments; wrong-count $.jobs"):
        builder.build()


@pytest.fixture
def rack() -> Instance:
    """Two servers at a switch, and two jobs of which one keeps a policy."""
    builder = InstanceBuilder("rack")
    for name in ("s0", "s1"):
        builder.add_server(name, gpu_type="v", gpus=1, gpu_memory=100, fabric_bandwidth=1)
    builder.add_switch("tor")
    for k in range(2):
        builder.add_link(f"up{k}", (f"s{k}", "tor"), bandwidth=100)
    builder.add_route_policy("short", RoutePolicy(max_links=2))
    builder.add_model("net", [Segment("x", {"v": 1}, {"v": 2}, 4, 1)])
    builder.add_job("a", model="net", workers=2, iterations=1, route_policy="short")
    builder.add_job("b", model="net", workers=1, iterations=1)
    return builder.build()


def test_a_cluster_is_taken_over_whole(rack: Instance) -> None:
    assert (rack.cluster.switches, rack.cluster.route_policies) == (("tor",), {"short": RoutePolicy(max_links=2)})
    builder = InstanceBuilder("rack")
    builder.add_route_policy("other", RoutePolicy(avoid=("tor",)))
    builder.add_cluster(rack.cluster)
    builder.add_models(rack.models)
    builder.add_job("b", model="net", workers=1, iterations=1)
    policies = {"other": RoutePolicy(avoid=("tor",)), "short": RoutePolicy(max_links=2)}
    assert builder.build().cluster == replace(rack.cluster, route_policies=policies)


def test_a_link_gets_another_bandwidth(rack: Instance) -> None:
    changed = change_bandwidth(rack, "up1", 7)
    assert changed.cluster.links == (rack.cluster.links[0], Link("up1", ("s1", "tor"), 7))
    assert replace(changed, cluster=rack.cluster) == rack
    with refuses("unknown-name $.cluster.links"):
        change_bandwidth(rack, "up2", 7)
    with refuses('out-of-range Link("up1").bandwidth'):
        change_bandwidth(rack, "up1", 0)


def test_a_job_leaves_and_its_model_stays(rack: Instance) -> None:
    left = remove_job(rack, "a")
    assert ([job.name for job in left.jobs], left.models) == (["b"], rack.models)
    with refuses("unknown-name $.jobs"):
        remove_job(rack, "c")
    with refuses("wrong-count $.jobs"):
        remove_job(left, "b")


def test_a_name_too_long_for_any_file_leads_to_none(tmp_path: Path) -> None:
    assert exists(tmp_path)
    assert not exists(tmp_path / ("x" * 5000))
    assert not exists(tmp_path / "none")


def test_the_head_of_a_damaged_archive_is_empty() -> None:
    packed = gzip.compress(b"words " * 100)
    assert unpacked_head(packed, 5) == b"words"
    assert unpacked_head(b"words of no archive", 5) == b"words"
    assert unpacked_head(packed[:4] + b"\xff" * 20, 5) == b""


def test_standard_output_is_no_folder() -> None:
    with misuse("unwritable output"):
        make_folder(Path("-"), ["a.json"])

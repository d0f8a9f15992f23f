"""Changes of an instance, clusters that a builder takes over, and names and bytes that lead to nothing."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt import Instance, InstanceBuilder, Segment, change_bandwidth, remove_job
from jigsaw_opt.documents import make_folder
from jigsaw_opt.documents.file_bytes import unpacked_head
from jigsaw_opt.documents.files import exists
from jigsaw_opt.problem import Link
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from tests.refusals import misuse, refuses


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

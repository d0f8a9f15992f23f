"""Topologies: what is joined to what, and over how many links."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances.gpus import server
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem import Cluster, Routes


def _cluster(topology: str, count: int) -> Cluster:
    return TOPOLOGIES[topology]([server(f"s{i}", "v100", 2) for i in range(count)], 1000, 3)


@pytest.mark.parametrize(
    ("topology", "count", "hops"),
    [("star", 5, 2), ("line", 4, 3), ("ring", 4, 1), ("ring", 2, 1), ("tree", 2, 4), ("tree", 16, 4)],
)
def test_hops_between_the_first_and_the_last_server(topology: str, count: int, hops: int) -> None:
    route = Routes(_cluster(topology, count)).between(0, count - 1)
    assert route is not None
    assert len(route) == hops


def test_separate_servers_have_no_route() -> None:
    assert Routes(_cluster("separate", 2)).between(0, 1) is None


def test_racks_hold_eight_servers_and_share_a_faster_uplink() -> None:
    cluster = _cluster("tree", 32)
    assert cluster.switches == ("rack0", "rack1", "rack2", "rack3", "spine")
    routes = Routes(cluster)
    assert len(routes.between(0, 7) or ()) == 2
    assert len(routes.between(7, 8) or ()) == 4
    assert {link.bandwidth for link in cluster.links if "spine" in link.ends} == {4000}

"""Groups of servers of one type, as the packing problem makes them."""

from __future__ import annotations

from jigsaw_opt.problem import Cluster, Link, Server
from jigsaw_opt.problem.packing import ServerType

OWN = Server("any", "v100", 8, 1000, 5000, 3)


def test_gpus_are_spread_evenly_and_servers_are_joined_by_a_switch() -> None:
    group = ServerType(OWN, 10, bandwidth=700, latency_us=2).group(3, 8)
    servers = tuple(Server(f"s{k}", "v100", gpus, 1000, 5000, 3) for k, gpus in enumerate((3, 3, 2)))
    links = tuple(Link(f"l{k}", (f"s{k}", "switch"), 700, 2) for k in range(3))
    assert group == Cluster(servers, ("switch",), links)


def test_one_server_needs_no_switch() -> None:
    assert ServerType(OWN, 10).group(1, 5) == Cluster((Server("s0", "v100", 5, 1000, 5000, 3),))

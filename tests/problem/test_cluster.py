"""Clusters: routes and rings, GPUs by number, names of their types, and groups of servers."""

from __future__ import annotations

import pickle

import pytest

from jigsaw_opt.problem.cluster import Channel, Cluster, Link, Routes, Server
from jigsaw_opt.problem.gpu_types import is_part, matching_types
from jigsaw_opt.problem.packing import ServerType


def server(name: str, gpus: int = 2, bandwidth: int = 100, latency: int = 1) -> Server:
    return Server(name, "v100", gpus, 10**9, bandwidth, latency)


def link(name: str, first: str, second: str, bandwidth: int = 10, latency: int = 5) -> Link:
    return Link(name, (first, second), bandwidth, latency)


def test_among_shortest_routes_the_smallest_names_from_the_first_server_win() -> None:
    # From "b" (first in the list) to "a" the middle hops are (m, z) or (n, c): m < n decides, not c < z.
    links = (
        link("0", "b", "n"),
        link("1", "n", "c"),
        link("2", "c", "a"),
        link("3", "b", "m"),
        link("4", "m", "z"),
        link("5", "z", "a"),
    )
    routes = Routes(Cluster((server("b"), server("a")), ("m", "n", "c", "z"), links))
    assert routes.between(0, 1) == (3, 4, 5)


def test_one_server_uses_its_fabric_and_no_link() -> None:
    assert Routes(Cluster((server("a", bandwidth=7, latency=3),))).channel({0: 2}) == Channel((), 7, 3)


def test_a_ring_takes_each_link_once_and_only_fabrics_with_two_workers() -> None:
    servers = (
        server("a", bandwidth=4, latency=90),
        server("b", bandwidth=3, latency=70),
        server("c", bandwidth=1, latency=99),
    )
    cluster = Cluster(servers, ("hub",), tuple(link(f"{n}-hub", n, "hub") for n in "abc"))
    routes = Routes(cluster)
    assert routes.channel({0: 1, 1: 1}) == Channel((0, 1), 10, 5)
    assert routes.channel({0: 1, 1: 2}) == Channel((0, 1), 3, 70)
    assert routes.channel({0: 2, 1: 1, 2: 1}) == Channel((0, 1, 2), 4, 90)


def test_gpus_are_numbered_server_by_server() -> None:
    cluster = Cluster(tuple(Server(name, "gpu", gpus, 1, 1) for name, gpus in (("a", 2), ("b", 1), ("c", 3))))
    gpus = cluster.gpus
    assert len(gpus) == cluster.gpu_count == 6
    assert gpus.of_server == (range(2), range(2, 3), range(3, 6))
    assert gpus.server_of == (0, 0, 1, 2, 2, 2)
    assert gpus.places == ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2))
    assert gpus.names == tuple(cluster.gpu_name(*place) for place in gpus.places)
    assert all(gpus.place_of[name] == place for name, place in zip(gpus.names, gpus.places, strict=True))
    assert cluster.gpus is gpus


def test_what_is_kept_changes_no_cluster() -> None:
    first, second = (Cluster((Server("a", "gpu", 2, 1, 1),)) for _ in range(2))
    assert first.gpus.names == ("a/0", "a/1")
    assert first == second and hash(first) == hash(second) and repr(first) == repr(second)
    assert pickle.loads(pickle.dumps(first)) == second
    assert len(first.without(servers=["a"]).gpus) == 0


KNOWN = ("NVIDIA-A100-SXM4-80GB", "A100-PCIE", "Tesla-V100", "v100")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("V100", ("v100",)),  # the same in another case comes before all whose words fit
        ("tesla-v100", ("Tesla-V100",)),
        ("a100", ("NVIDIA-A100-SXM4-80GB", "A100-PCIE")),
        ("nvidia a100 pcie 40gb", ("A100-PCIE",)),
        ("sxm4", ("NVIDIA-A100-SXM4-80GB",)),
        ("h100", ()),
        ("--", ()),
        ("", ()),
    ],
)
def test_a_name_means_the_types_whose_words_it_has(asked: str, found: tuple[str, ...]) -> None:
    assert matching_types(asked, KNOWN) == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("a100", ("nvidia_a100",)),  # whole GPUs
        ("a100_3g.20gb", ("nvidia_a100_3g.20gb",)),
        ("3g.20gb", ("nvidia_a100_3g.20gb",)),
        ("a100_1g.5gb", ("nvidia_a100",)),  # no such part is known
    ],
)
def test_parts_of_gpus_are_no_whole_ones(asked: str, found: tuple[str, ...]) -> None:
    assert matching_types(asked, ("nvidia_a100", "nvidia_a100_3g.20gb")) == found
    assert [is_part(name) for name in found] == ["3g" in name for name in found]


OWN = Server("any", "v100", 8, 1000, 5000, 3)


def test_gpus_are_spread_evenly_and_servers_are_joined_by_a_switch() -> None:
    group = ServerType(OWN, 10, bandwidth=700, latency_us=2).group(3, 8)
    servers = tuple(Server(f"s{k}", "v100", gpus, 1000, 5000, 3) for k, gpus in enumerate((3, 3, 2)))
    links = tuple(Link(f"l{k}", (f"s{k}", "switch"), 700, 2) for k in range(3))
    assert group == Cluster(servers, ("switch",), links)
    assert ServerType(OWN, 10).group(1, 5) == Cluster((Server("s0", "v100", 5, 1000, 5000, 3),))

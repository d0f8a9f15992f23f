from jigsaw_opt.problem.cluster import Channel, Cluster, Link, Routes, Server


def server(name: str, gpus: int = 2, bandwidth: int = 100, latency: int = 1) -> Server:
    return Server(name, "v100", gpus, 10**9, bandwidth, latency)


def link(name: str, first: str, second: str, bandwidth: int = 10, latency: int = 5) -> Link:
    return Link(name, (first, second), bandwidth, latency)


def test_the_route_has_fewest_links() -> None:
    links = (
        link("long1", "a", "x"),
        link("long2", "x", "y"),
        link("long3", "y", "b"),
        link("s1", "a", "z"),
        link("s2", "z", "b"),
    )
    routes = Routes(Cluster((server("a"), server("b")), ("x", "y", "z"), links))
    assert routes.between(0, 1) == (3, 4)
    assert routes.between(1, 0) == (3, 4)


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


def test_names_compare_by_code_point() -> None:
    links = (link("0", "a", "é"), link("1", "é", "b"), link("2", "a", "z"), link("3", "z", "b"))
    assert Routes(Cluster((server("a"), server("b")), ("é", "z"), links)).between(0, 1) == (2, 3)


def test_a_route_may_pass_through_a_server() -> None:
    cluster = Cluster((server("a"), server("b"), server("c")), (), (link("ab", "a", "b"), link("bc", "b", "c")))
    assert Routes(cluster).between(0, 2) == (0, 1)


def test_servers_without_a_path_share_no_channel() -> None:
    routes = Routes(Cluster((server("a"), server("b"))))
    assert routes.between(0, 1) is None
    assert routes.channel({0: 1, 1: 1}) is None
    assert routes.component == (0, 1)


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

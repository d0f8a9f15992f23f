"""Routes of what plans, of the checker and of the referee, which share no code, are the same under any policy."""

from __future__ import annotations

import random

from fault_campaign.referee_network import route_between

from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.documents.encoding import encode_part
from jigsaw_opt.problem.cluster import Cluster, Link, Routes, Server
from tests.random_fabrics import random_fabric, random_policy


def test_routes_under_policies_agree() -> None:
    rng, found = random.Random(2), {True: 0, False: 0}
    for _ in range(300):
        fabric = random_fabric(rng)
        policy = random_policy(rng, fabric.graph)
        count = rng.randint(2, len(fabric.ends))
        names = [(a, b) for a, b in ((fabric.graph.nodes[x], fabric.graph.nodes[y]) for x, y in fabric.graph.ends)]
        links = tuple(
            Link(name, pair, rng.randint(1, 9), rng.randint(0, 9)) for name, pair in zip(fabric.graph.links, names)
        )
        servers = tuple(Server(name, "v", 2, 1, rng.randint(1, 9)) for name in fabric.ends[:count])
        cluster = Cluster(servers, fabric.ends[count:], links, {"p": policy})
        routes, own = Routes(cluster).under("p"), RouteFinder(cluster, "p")
        document = encode_part(policy)
        for one in range(count):
            for other in range(one + 1, count):
                route = routes.between(one, other)
                ends = (servers[one].name, servers[other].name)
                told = route_between([encode_part(link) for link in links], document, *ends)
                assert (None if told is None else [x["name"] for x in told]) == (
                    None if route is None else [links[k].name for k in route]
                )
                terms = own.passage(one, other)
                assert (terms is None) == (route is None)
                found[route is None] += 1
                if terms is not None and route is not None:
                    assert terms.links == set(route)
        ring, exchange = routes.channel(dict.fromkeys(range(count), 1)), own.exchange(range(count))
        assert (ring is None) == (exchange is None)
        if ring is not None and exchange is not None:
            assert (set(ring.links), ring.rate) == (exchange.links, exchange.rate)
    assert min(found.values()) > 300


def test_servers_that_both_reach_a_third_may_not_reach_one_another() -> None:
    """A limit of one link: the ring of all three is refused, whichever two are its neighbours."""
    from jigsaw_opt.problem.route_policy import RoutePolicy

    servers = tuple(Server(name, "v", 1, 1, 1) for name in "abcd")
    links = tuple(Link(a + b, (a, b), 1) for a, b in ("ab", "bc", "cd", "da"))
    cluster = Cluster(servers, (), links, {"p": RoutePolicy(max_links=1)})
    routes, own = Routes(cluster).under("p"), RouteFinder(cluster, "p")
    assert routes.ring((0, 1)) == (0,) and own.exchange([0, 1]) is not None
    assert routes.ring((0, 1, 2, 3)) is None and own.exchange([0, 1, 2, 3]) is None
    assert Routes(cluster).ring((0, 1, 2, 3)) == (0, 1, 2, 3)

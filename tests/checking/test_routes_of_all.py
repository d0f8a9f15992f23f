"""Routes of what plans, of the checker and of the referee, which share no code, are the same under any policy."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

from fault_campaign.referee import verdict
from fault_campaign.referee_network import route_between

from jigsaw_opt.checking.checker import violations
from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.documents import encode_instance, encode_plan, instance_sha256
from jigsaw_opt.problem.cluster import Cluster, Link, Routes, Server
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.random_fabrics import random_fabric, random_policy
from tests.random_instances import GOALS, random_instance, with_route_policies


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
        document = policy.keyed()
        for one in range(count):
            for other in range(one + 1, count):
                route = routes.between(one, other)
                ends = (servers[one].name, servers[other].name)
                told = route_between([link.keyed() for link in links], document, *ends)
                assert (None if told is None else [x["name"] for x in told]) == (
                    None if route is None else [links[k].name for k in route]
                )
                assert routes.lengths(one).get(other) == (None if route is None else len(route))
                assert routes.lengths(other).get(one) == routes.lengths(one).get(other)
                assert routes.joined(one, other) == (route is not None)
                assert route is None or routes.component[one] == routes.component[other]
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
    servers = tuple(Server(name, "v", 1, 1, 1) for name in "abcd")
    links = tuple(Link(a + b, (a, b), 1) for a, b in ("ab", "bc", "cd", "da"))
    cluster = Cluster(servers, (), links, {"p": RoutePolicy(max_links=1)})
    routes, own = Routes(cluster).under("p"), RouteFinder(cluster, "p")
    assert routes.ring((0, 1)) == (0,) and own.exchange([0, 1]) is not None
    assert routes.ring((0, 1, 2, 3)) is None and own.exchange([0, 1, 2, 3]) is None
    assert Routes(cluster).ring((0, 1, 2, 3)) == (0, 1, 2, 3)


def test_checker_and_referee_judge_plans_that_know_no_policies_alike() -> None:
    """Plans of data-parallel jobs, made without policies that their jobs have."""
    rules: Counter[str] = Counter()
    for seed in range(120):
        free = random_instance(seed, *GOALS[seed % 3])
        plan = solve(free, "greedy", Options(threads=1)).plan
        if plan is None:
            continue
        instance = with_route_policies(free, random.Random(seed))
        tried = replace(plan, instance_sha256=instance_sha256(instance), bound=0, status="feasible")
        found = violations(instance, tried)
        own = verdict(json.loads(encode_instance(instance)), json.loads(encode_plan(tried)))
        assert bool(found) == bool(own), f"{seed}: {found} or {own!r}"
        rules.update({violation.rule for violation in found} or {"correct"})
    assert rules["placement"] > 5 and rules["correct"] > 50

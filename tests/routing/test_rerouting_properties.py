"""Each way to forward packets by hand, and what D2R guarantees on random fabrics, beside brute force."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import pytest

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.routing import MECHANISMS, Fabric, LinkChange, RoutePolicy, TrafficFlow, simulate_rerouting
from jigsaw_opt.routing.mechanisms import D2R, Controller, Ecmp, FastReroute, Mechanism, Shortest
from jigsaw_opt.routing.simulation import fabric_of
from jigsaw_opt.routing.traffic import Packet
from tests.random_fabrics import complies, random_fabric, random_failures, random_flows, walks_by_brute_force

LADDER = Fabric.alike(
    "order encoding", "st", "abcd", [("s", "a"), ("a", "b"), ("b", "t"), ("s", "c"), ("c", "d"), ("d", "t"), ("a", "c")]
)
"""Two ways of three links from s to t, s-a-b-t and s-c-d-t, with a rung from a to c."""
FAILS = [LinkChange(0, "a--b")]


def walk(
    mechanism: Mechanism, changes: list[LinkChange] = FAILS, policy: RoutePolicy | None = None
) -> tuple[str, bool]:
    flow = TrafficFlow("s", "t", policy or RoutePolicy())
    (packet,) = simulate_rerouting(LADDER, [flow], changes, mechanism).packets
    return "".join(LADDER.graph.nodes[node] for node, _ in packet.walk), packet.end == "arrived"


def test_d2r_turns_where_it_meets_the_failure() -> None:
    assert walk(D2R(), []) == ("sabt", True)
    assert walk(D2R()) == ("sacdt", True)
    assert walk(D2R(), [*FAILS, LinkChange(0, "a--c")]) == ("sascdt", True)
    assert walk(D2R(), [*FAILS, LinkChange(0, "c--d")]) == ("sac", False)


def test_d2r_keeps_its_policy_after_a_failure() -> None:
    assert walk(D2R(), policy=RoutePolicy(avoid=("c",))) == ("sa", False)
    assert walk(D2R(), policy=RoutePolicy(max_links=3)) == ("sa", False)
    assert walk(D2R(), policy=RoutePolicy(via=(("b",),))) == ("sacdtbt", True)


def test_static_mechanisms() -> None:
    assert walk(Shortest(), []) == ("sabt", True)
    assert walk(Shortest()) == ("sa", False)
    assert walk(FastReroute()) == ("sacdt", True)
    assert walk(Ecmp(), [LinkChange(0, "s--a")]) == ("scdt", True)
    assert walk(Ecmp(), [LinkChange(0, "s--c")])[0] == "sabt"


def test_one_backup_may_lead_to_and_fro() -> None:
    went, arrived = walk(FastReroute(), [*FAILS, LinkChange(0, "c--d")])
    assert not arrived and went.startswith("sac") and len(went) == 256


def test_blind_mechanisms_break_policies() -> None:
    outcome = simulate_rerouting(LADDER, [TrafficFlow("s", "t", RoutePolicy(via=(("d",),)))], [], Shortest())
    assert (outcome.violations, outcome.compliant, outcome.delivered_share) == (1, 0, 0)


def test_a_controller_loses_packets_until_its_routes_are_in_force() -> None:
    flow = TrafficFlow("s", "t", packets=5, gap_us=10)
    outcome = simulate_rerouting(LADDER, [flow], [LinkChange(5, "a--b")], Controller(delay_us=20))
    assert [packet.end for packet in outcome.packets] == ["arrived", "dropped", "dropped", "arrived", "arrived"]
    assert (outcome.lost, outcome.recomputations, outcome.stretch) == (2, 1, 1)
    twice = [LinkChange(5, "a--b"), LinkChange(5, "a--c")]
    assert simulate_rerouting(LADDER, [flow], twice, Controller(delay_us=20)).recomputations == 1


def test_measures_of_a_reroute() -> None:
    outcome = simulate_rerouting(LADDER, [TrafficFlow("s", "t")], FAILS, D2R())
    assert (outcome.stretch, outcome.delivered_share, outcome.most_met) == (Fraction(4, 3), 1, 1)


def test_links_recover_and_packets_on_a_link_arrive() -> None:
    flow = TrafficFlow("s", "t", packets=2, gap_us=100)
    changes = [LinkChange(2, "a--b"), LinkChange(50, "a--b", up=True)]
    outcome = simulate_rerouting(LADDER, [flow], changes, Shortest())
    assert [packet.end for packet in outcome.packets] == ["arrived", "arrived"]


def test_the_fabric_of_a_cluster() -> None:
    servers = tuple(Server(name, "v100", 1, 1, 1) for name in "ba")
    fabric = fabric_of(Cluster(servers, ("w",), (Link("x", ("a", "w"), 9, 7), Link("y", ("b", "w"), 9))))
    assert (fabric.ends, fabric.latency_us) == (("b", "a"), (7, 1))
    (packet,) = simulate_rerouting(fabric, [TrafficFlow("b", "a")], [], D2R()).packets
    assert packet.used == 2 and packet.end == "arrived"


def links_of(fabric: Fabric, packet: Packet) -> list[int]:
    joined = {frozenset(ends): link for link, ends in enumerate(fabric.graph.ends)}
    nodes = [node for node, _ in packet.walk]
    return [joined[frozenset(pair)] for pair in pairwise(nodes)]


def check(fabric: Fabric, flow: TrafficFlow, packet: Packet, dead: set[int]) -> None:
    """A packet of D2R where all failures came before it was sent."""
    graph, ends = fabric.graph, (packet.flow.source, packet.flow.target)
    nodes, links = [node for node, _ in packet.walk], links_of(fabric, packet)
    most = 8 * len(graph.nodes) if flow.policy.max_links is None else max(0, flow.policy.max_links - len(links))
    onward = walks_by_brute_force(graph, flow.policy, ends, dead, (nodes, links), most)
    assert (packet.end == "arrived") == (onward is not None)
    if packet.end == "arrived":
        assert complies(graph, flow.policy, nodes, links, ends) and packet.compliant
    if flow.policy.max_links is None:
        first = walks_by_brute_force(graph, flow.policy, ends, dead, most=8 * len(graph.nodes))
        assert (packet.end == "arrived") == (first is not None) == (packet.least_links is not None)
    assert packet.met <= dead and not set(links) & dead
    assert packet.recomputations == len(packet.met)


def check_random_case(seed: int) -> int:
    """How many packets met a failure."""
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    flows, changes = random_flows(rng, fabric), random_failures(rng, fabric)
    dead = {fabric.graph.links.index(change.link) for change in changes}
    outcome = simulate_rerouting(fabric, flows, changes, D2R())
    for flow, packet in zip(flows, outcome.packets, strict=True):
        check(fabric, flow, packet, dead)
    return sum(packet.recomputations > 0 for packet in outcome.packets)


def test_d2r_delivers_where_a_compliant_path_exists_and_only_there() -> None:
    assert sum(check_random_case(seed) for seed in range(300)) > 100


def test_no_pair_of_node_and_state_comes_twice_between_two_failures() -> None:
    """Failures while packets are on their way: each stretch without a recomputation repeats nothing."""
    rng, met = random.Random(3), 0

    class Watched(D2R):
        def start(self, graph, flows):  # type: ignore[no-untyped-def]
            switches = super().start(graph, flows)
            forward = switches.next_link

            def next_link(packet, dead, now_us):  # type: ignore[no-untyped-def]
                link = forward(packet, dead, now_us)
                visits.append((packet, len(packet.met), packet.node, packet.state))
                return link

            switches.next_link = next_link  # type: ignore[method-assign]
            return switches

    for _ in range(100):
        fabric = random_fabric(rng)
        visits: list[tuple[Packet, int, int, int]] = []
        changes = [
            LinkChange(rng.randint(0, 12), link, rng.random() < 0.2)
            for link in fabric.graph.links
            if rng.random() < 0.5
        ]
        outcome = simulate_rerouting(fabric, random_flows(rng, fabric, 3), changes, Watched())
        assert len({(id(packet), *rest) for packet, *rest in visits}) == len(visits)
        assert all(p.recomputations <= len(changes) and p.end is not None for p in outcome.packets)
        assert all(packet.compliant for packet in outcome.packets if packet.end == "arrived")
        met += sum(packet.recomputations for packet in outcome.packets)
    assert met > 50


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_every_mechanism_ends_all_packets_the_same_way_twice(mechanism) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(11)
    for _ in range(40):
        fabric = random_fabric(rng)
        flows, changes = random_flows(rng, fabric, 2), random_failures(rng, fabric, 4)
        first, second = (simulate_rerouting(fabric, flows, changes, mechanism) for _ in range(2))
        assert [p.walk for p in first.packets] == [p.walk for p in second.packets]
        assert all(packet.end is not None for packet in first.packets)
        sent = len(first.packets)
        dropped = sum(packet.end == "dropped" for packet in first.packets)
        assert first.compliant + first.violations + dropped == sent == 2 * len(flows)


@pytest.mark.parametrize("mechanism", [D2R(), Controller()], ids=lambda mechanism: mechanism.name)
def test_without_failures_all_that_can_arrives_on_least_walks(mechanism) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(5)
    for _ in range(60):
        fabric = random_fabric(rng)
        outcome = simulate_rerouting(fabric, random_flows(rng, fabric), [], mechanism)
        assert outcome.violations == outcome.lost == outcome.recomputations == 0
        assert all(p.used == p.least_links for p in outcome.packets if p.end == "arrived")
        assert outcome.compliant == outcome.routable

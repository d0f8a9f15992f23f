"""Each way to forward packets on a fabric small enough to follow by hand."""

from __future__ import annotations

from fractions import Fraction

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.routing import Fabric, LinkChange, RoutePolicy, TrafficFlow, simulate_rerouting
from jigsaw_opt.routing.mechanisms import D2R, Controller, Ecmp, FastReroute, Mechanism, Shortest
from jigsaw_opt.routing.simulation import fabric_of

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

"""Least compliant walks on a graph of links, and rates of transfers that share links."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.network.contention import Degraded, FairSharing, degradation
from jigsaw_opt.problem.network.route_policy import FREE, RoutePolicy
from jigsaw_opt.problem.network.walks import LinkGraph, PolicyAutomaton, least_walk
from tests.random_fabrics import random_fabric, random_failures, random_policy, walks_by_brute_force

SQUARE = LinkGraph(
    "adcbe", [("q", ("a", "b")), ("p", ("a", "c")), ("r", ("b", "d")), ("s", ("c", "d")), ("t", ("b", "e"))]
)


def names(policy: RoutePolicy, start: str = "a", goal: str = "d", graph: LinkGraph = SQUARE) -> str | None:
    ends = (graph.number[start], graph.number[goal])
    automaton = PolicyAutomaton(policy, graph, ends)
    walk = least_walk(graph, automaton, (ends[0], automaton.enter(0, ends[0])), ends[1], max_links=automaton.max_links)
    return None if walk is None else start + "".join(graph.nodes[hop.node] for hop in walk)


@pytest.mark.parametrize(
    ("policy", "walk"),
    [
        (FREE, "abd"),  # names of nodes break ties: the link to b has the greater name
        (RoutePolicy(avoid=("b",)), "acd"),
        (RoutePolicy(avoid=("a", "d")), "abd"),
        (RoutePolicy(avoid=("b", "c")), None),
        (RoutePolicy(avoid_links=("r",)), "acd"),
        (RoutePolicy(via=(("c",),)), "acd"),
        (RoutePolicy(via=(("e",),)), "abebd"),
        (RoutePolicy(via=(("e",), ("c",))), "abebacd"),
        (RoutePolicy(via=(("e", "a"), ("d",))), "abd"),
        (RoutePolicy(via=(("e",),), max_links=4), "abebd"),
        (RoutePolicy(via=(("e",),), max_links=3), None),
        (RoutePolicy(via=(("e",),), avoid=("b",)), None),
        (RoutePolicy(max_links=1), None),
    ],
)
def test_walks_by_hand(policy: RoutePolicy, walk: str | None) -> None:
    assert names(policy) == walk


def test_a_walk_may_pass_its_goal() -> None:
    line = LinkGraph("abc", [("x", ("a", "b")), ("y", ("b", "c"))])
    assert names(RoutePolicy(via=(("c",),)), "a", "b", line) == "abcb"


def test_least_walks_are_those_of_brute_force() -> None:
    rng, found = random.Random(7), 0
    for _ in range(300):
        fabric = random_fabric(rng)
        graph, policy = fabric.graph, random_policy(rng, fabric.graph)
        ends = (graph.number[fabric.ends[0]], graph.number[fabric.ends[1]])
        dead = {graph.links.index(change.link) for change in random_failures(rng, fabric)}
        automaton = PolicyAutomaton(policy, graph, ends)
        start = (ends[0], automaton.enter(0, ends[0]))
        walk = least_walk(graph, automaton, start, ends[1], dead, policy.max_links)
        brute = walks_by_brute_force(graph, policy, ends, dead, most=28)
        assert (walk is None) == (brute is None)
        if walk is not None and brute is not None:
            assert [hop.link for hop in walk] == brute[1]
            found += 1
    assert 100 < found < 290


CHANNELS = st.builds(
    lambda links, rate: Channel(tuple(sorted(links)), rate, 0),
    st.sets(st.integers(0, 3), max_size=4),
    st.integers(1, 9),
)


def uses(*links: int, rate: int = 100) -> Channel:
    return Channel(links, rate, 0)


def test_a_transfer_without_links_keeps_its_rate() -> None:
    for model in (FairSharing(), Degraded(Fraction(1))):
        assert model.rates([uses(rate=7), uses(0, rate=5)], [5]) == (7, 5)


@given(st.lists(CHANNELS, max_size=6), st.lists(st.integers(1, 9), min_size=4, max_size=4))
@settings(max_examples=200)
def test_fair_rates_are_max_min_fair(channels: list[Channel], bandwidths: list[int]) -> None:
    rates = FairSharing().rates(channels, bandwidths)
    carried = [sum(r for r, c in zip(rates, channels) if link in c.links) for link in range(4)]
    assert all(total <= bandwidth for total, bandwidth in zip(carried, bandwidths))
    for rate, channel in zip(rates, channels):
        full = [link for link in channel.links if carried[link] == bandwidths[link]]
        largest_there = [max(r for r, c in zip(rates, channels) if link in c.links) for link in full]
        assert rate <= channel.rate
        assert rate == channel.rate or rate in largest_there


def test_degradation_of_the_paper() -> None:
    assert [degradation(Fraction(1, 2), k) for k in (1, 2, 3)] == [1, Fraction(5, 2), 4]
    assert degradation(Fraction(0), 4) == 4
    assert degradation(Fraction(1, 2), Fraction(3, 10)) == 1


def test_degraded_rates_follow_the_fullest_link() -> None:
    model = Degraded(Fraction(1, 2))
    assert model.rates([uses(0), uses(0, 1), uses(1), uses(1)], [100, 100]) == (40, 25, 25, 25)


def test_only_the_sending_portion_of_users_counts() -> None:
    model = Degraded(Fraction(0), share=Fraction(1, 2))
    assert model.rates([uses(0)] * 4, [100]) == (50,) * 4
    assert model.rates([uses(0)], [100]) == (100,)

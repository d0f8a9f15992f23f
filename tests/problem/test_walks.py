"""Least compliant walks: by hand, and beside brute force on random graphs."""

from __future__ import annotations

import random

import pytest

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


def test_names_of_nodes_break_ties() -> None:
    """The link to b has the greater name."""
    assert names(FREE) == "abd"


@pytest.mark.parametrize(
    ("policy", "walk"),
    [
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

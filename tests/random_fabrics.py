"""Random small fabrics, policies and failures, and compliant walks by brute force."""

from __future__ import annotations

import random
from collections.abc import Collection

from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing import Fabric, LinkChange, TrafficFlow


def random_fabric(rng: random.Random) -> Fabric:
    """Three to seven nodes whose names are out of order, joined or not."""
    nodes = rng.sample("ABCabcé", rng.randint(3, 7))
    pairs = [(a, b) for k, a in enumerate(nodes) for b in nodes[k + 1 :] if rng.random() < 0.5]
    links = [(f"{rng.choice('xyz')}{k}", pair) for k, pair in enumerate(pairs)]
    return Fabric("random", tuple(nodes), LinkGraph(nodes, links), tuple(rng.randint(1, 3) for _ in links))


def random_policy(rng: random.Random, graph: LinkGraph) -> RoutePolicy:
    """Any of its parts, each with chance."""

    def some(names: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(rng.sample(names, min(len(names), rng.randint(1, most))))

    return RoutePolicy(
        avoid=some(graph.nodes, 2) if rng.random() < 0.3 else (),
        avoid_links=some(graph.links, 2) if graph.links and rng.random() < 0.3 else (),
        via=tuple(some(graph.nodes, 2) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))),
        max_links=rng.randint(1, 8) if rng.random() < 0.3 else None,
    )


def complies(graph: LinkGraph, policy: RoutePolicy, nodes: list[int], links: list[int], ends: tuple[int, int]) -> bool:
    """Whether a walk keeps a policy, by the words of the specification."""
    names = [graph.nodes[node] for node in nodes]
    entered = {graph.nodes[node] for node in nodes if node not in ends}
    return (
        not entered & set(policy.avoid or ())
        and not {graph.links[link] for link in links} & set(policy.avoid_links or ())
        and all(set(group) & set(names) for group in policy.via or ())
        and (policy.max_links is None or len(links) <= policy.max_links)
    )


def walks_by_brute_force(
    graph: LinkGraph,
    policy: RoutePolicy,
    ends: tuple[int, int],
    dead: Collection[int] = (),
    begun: tuple[list[int], list[int]] | None = None,
    most: int = 9,
) -> tuple[list[int], list[int]] | None:
    """Nodes and links of the least compliant walk that begins as `begun` does: all walks are tried, shorter ones first.

    A walk with more than `most` further links is not looked for.
    """
    pending = [begun or ([ends[0]], [])]
    for _ in range(most + 1):
        found = [w for w in pending if w[0][-1] == ends[1] and complies(graph, policy, *w, ends)]
        if found:
            return min(found, key=lambda walk: [graph.nodes[node] for node in walk[0]])
        pending = _thinned(graph, policy, pending, ends, dead)
    return None


def _thinned(
    graph: LinkGraph,
    policy: RoutePolicy,
    walks: list[tuple[list[int], list[int]]],
    ends: tuple[int, int],
    dead: Collection[int],
) -> list[tuple[list[int], list[int]]]:
    """All walks with one link more; of those that stand at one node with the same groups passed, the smallest alone."""
    best: dict[tuple[int, tuple[bool, ...]], tuple[list[int], list[int]]] = {}
    for nodes, links in walks:
        for link, pair in enumerate(graph.ends):
            if nodes[-1] in pair and link not in dead:
                walk = ([*nodes, pair[pair[0] == nodes[-1]]], [*links, link])
                names = [graph.nodes[node] for node in walk[0]]
                loose = RoutePolicy(policy.avoid, policy.avoid_links, (), policy.max_links)
                passed = tuple(bool(set(group) & set(names)) for group in policy.via or ())
                other = best.get((walk[0][-1], passed))
                if complies(graph, loose, *walk, ends) and (
                    other is None or names < [graph.nodes[node] for node in other[0]]
                ):
                    best[walk[0][-1], passed] = walk
    return list(best.values())


def random_flows(rng: random.Random, fabric: Fabric, packets: int = 1) -> list[TrafficFlow]:
    """Four flows between any two nodes."""
    return [
        TrafficFlow(*rng.sample(fabric.ends, 2), random_policy(rng, fabric.graph), rng.randint(0, 9), packets, 3)
        for _ in range(4)
    ]


def random_failures(rng: random.Random, fabric: Fabric, time_us: int = 0) -> list[LinkChange]:
    """Up to half of all links fail at one time."""
    links = fabric.graph.links
    return [LinkChange(time_us, name) for name in rng.sample(links, rng.randint(0, len(links) // 2))]

"""The least walk between two nodes that keeps a route policy (specification: route-policies).

A policy is an automaton that reads the nodes of a walk. Its state is the set of its groups `via` that the walk has
passed; the links used so far only count against `max_links`. So a walk with fewest links is a shortest path in the
product of the network and these sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.network.route_policy import RoutePolicy


@dataclass(frozen=True, slots=True)
class Hop:
    """A link that a walk uses, and what is behind it.

    `node`: number of the node that it leads to.
    """

    link: int
    node: int
    state: int


class LinkGraph:
    """Nodes in the order of their names, and links between them.

    `links`: names, and the names of the two ends; no two links join the same two nodes.
    """

    def __init__(self, nodes: Iterable[str], links: Iterable[tuple[str, tuple[str, str]]]) -> None:
        self.nodes = tuple(sorted(nodes))
        self.number = {name: k for k, name in enumerate(self.nodes)}
        stated = list(links)
        self.links = tuple(name for name, _ in stated)
        self.ends = tuple((self.number[first], self.number[second]) for _, (first, second) in stated)
        neighbours: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for link, (first, second) in enumerate(self.ends):
            neighbours[first].append((second, link))
            neighbours[second].append((first, link))
        self.neighbours: tuple[tuple[tuple[int, int], ...], ...] = tuple(tuple(sorted(n)) for n in neighbours)
        """For each node, its neighbours in the order of their names, each with the number of the link."""


class PolicyAutomaton:
    """A policy that reads nodes of one network, for walks between two ends.

    `policy`: the policy; names that the network has not are passed over. `ends`: the two nodes that `avoid` does not
    bind.
    """

    def __init__(self, policy: RoutePolicy, network: LinkGraph, ends: Collection[int]) -> None:
        groups = policy.via or ()
        self.full = (1 << len(groups)) - 1
        self.max_links = policy.max_links
        avoided = (network.number[name] for name in policy.avoid or () if name in network.number)
        self.avoid = frozenset(avoided) - frozenset(ends)
        links: Mapping[str, int] = {name: k for k, name in enumerate(network.links)} if policy.avoid_links else {}
        self.avoid_links = frozenset(links[name] for name in policy.avoid_links or () if name in links)
        self._groups: dict[int, int] = {}
        for bit, group in enumerate(groups):
            for name in group:
                if name in network.number:
                    node = network.number[name]
                    self._groups[node] = self._groups.get(node, 0) | 1 << bit

    def enter(self, state: int, node: int) -> int:
        """Return the state of a walk that comes to `node` in `state`."""
        return state | self._groups.get(node, 0)


def least_walk(
    graph: LinkGraph,
    policy: PolicyAutomaton,
    start: tuple[int, int],
    goal: int,
    dead: Collection[int] = (),
    max_links: int | None = None,
) -> tuple[Hop, ...] | None:
    """Return the least walk that complies, from a node and a state to `goal`; None where there is none.

    It has the fewest links, and among such walks the smallest sequence of names of nodes, compared element by
    element. No two links join the same two nodes, so these names say which links are used.

    `max_links`: most links that the walk may still have; None for any number.
    """
    layers = _layers(graph, policy, start, goal, dead, max_links)
    if layers is None:
        return None
    return _smallest(start, layers)


def walk_lengths(
    graph: LinkGraph, policy: PolicyAutomaton, start: tuple[int, int], max_links: int | None = None
) -> dict[int, int]:
    """Return the number of links of the least walk that complies, by node; nodes of `avoid` have none."""
    seen, layer, lengths, passed = {start}, [start], dict[int, int](), 0
    while layer:
        for node, state in layer:
            # Breadth first: the first visit in this state has the fewest links.
            if state == policy.full:
                lengths.setdefault(node, passed)
        if max_links is not None and passed >= max_links:
            break
        layer, passed = list(_behind(graph, policy, layer, seen)), passed + 1
    return lengths


def _behind(
    graph: LinkGraph, policy: PolicyAutomaton, layer: Iterable[tuple[int, int]], seen: set[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of node and state one link after those of a layer that are not `seen` yet; now they are."""
    for first, state in layer:
        for node, link in graph.neighbours[first]:
            if node in policy.avoid or link in policy.avoid_links:
                continue
            there = (node, policy.enter(state, node))
            if there not in seen:
                seen.add(there)
                yield there


def _layers(
    graph: LinkGraph,
    policy: PolicyAutomaton,
    start: tuple[int, int],
    goal: int,
    dead: Collection[int],
    max_links: int | None,
) -> Sequence[Mapping[tuple[int, int], Sequence[Hop]]] | None:
    """Return pairs of node and state by distance from `start`, with the hops to the next layer, up to the goal."""
    barred = policy.avoid_links | frozenset(dead)
    last, seen, layer = (goal, policy.full), {start}, [start]
    layers: list[dict[tuple[int, int], list[Hop]]] = []
    while last not in layer:
        if not layer or (max_links is not None and len(layers) >= max_links):
            return None
        steps: dict[tuple[int, int], list[Hop]] = {}
        behind: set[tuple[int, int]] = set()
        for pair in layer:
            steps[pair] = []
            for node, link in graph.neighbours[pair[0]]:
                if node in policy.avoid or link in barred:
                    continue
                there = (node, policy.enter(pair[1], node))
                if there not in seen:
                    behind.add(there)
                    steps[pair].append(Hop(link, *there))
        # = behind|Only now, so that a pair keeps every hop that reaches it in this number of links.
        seen |= behind
        layers.append(steps)
        layer = list(behind)
    return _towards(layers, last)


def _towards(
    layers: Sequence[Mapping[tuple[int, int], Sequence[Hop]]], last: tuple[int, int]
) -> Sequence[Mapping[tuple[int, int], Sequence[Hop]]]:
    """Return the layers with those steps alone that lie on a shortest way to `last`."""
    wanted, kept = {last}, []
    for layer in reversed(layers):
        on_way = {node: [s for s in steps if (s.node, s.state) in wanted] for node, steps in layer.items()}
        kept.append({node: steps for node, steps in on_way.items() if steps})
        wanted = set(kept[-1])
    return kept[::-1]


def _smallest(start: tuple[int, int], layers: Sequence[Mapping[tuple[int, int], Sequence[Hop]]]) -> tuple[Hop, ...]:
    """Return the walk that takes, step by step, the first neighbour by name: what was passed follows from the names."""
    walk, node = [], start
    for layer in layers:
        step = layer[node][0]
        walk.append(step)
        node = (step.node, step.state)
    return tuple(walk)

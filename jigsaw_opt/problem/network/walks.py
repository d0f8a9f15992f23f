"""The least walk between two nodes that keeps a route policy (specification: route-policies).

A policy is an automaton that reads the nodes of a walk. Its state is the set of its groups `via` that the walk has
passed; the links used so far only count against `max_links`. So a walk with fewest links is a shortest path in the
product of the network and these sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.network.route_policy import RoutePolicy


class Hop(NamedTuple):
    """A link that a walk uses, and what is behind it.

    `node`: number of the node that it leads to.
    """

    link: int
    node: int
    state: int


_Layer = Mapping[tuple[int, int], Sequence[Hop]]
"""Pairs of node and state, each with the hops from it to the next layer."""


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
    layers, last = list[_Layer](), (goal, policy.full)
    for layer in _reached(graph, policy, start, policy.avoid_links | frozenset(dead), max_links):
        if last in layer:
            return _smallest(start, _towards(layers, last))
        layers.append(layer)
    return None


def walk_lengths(
    graph: LinkGraph, policy: PolicyAutomaton, start: tuple[int, int], max_links: int | None = None
) -> dict[int, int]:
    """Return the number of links of the least walk that complies, by node; nodes of `avoid` have none."""
    lengths = dict[int, int]()
    for passed, layer in enumerate(_reached(graph, policy, start, policy.avoid_links, max_links)):
        for node, state in layer:
            # Breadth first: the first visit in this state has the fewest links.
            if state == policy.full:
                lengths.setdefault(node, passed)
    return lengths


def _reached(
    graph: LinkGraph,
    policy: PolicyAutomaton,
    start: tuple[int, int],
    barred: Collection[int],
    max_links: int | None,
) -> Iterator[_Layer]:
    """Yield pairs of node and state by distance from `start`; the hops of each are filled in as the walk goes on."""
    seen, layer, passed = {start}, [start], 0
    while layer:
        steps: dict[tuple[int, int], list[Hop]] = {pair: [] for pair in layer}
        yield steps
        if max_links is not None and passed >= max_links:
            return
        for (first, state), hops in steps.items():
            for node, link in graph.neighbours[first]:
                if node in policy.avoid or link in barred:
                    continue
                there = (node, policy.enter(state, node))
                if there not in seen:
                    hops.append(Hop(link, *there))
        # Only now, so that a pair keeps every hop that reaches it in this number of links.
        layer, passed = list({(hop.node, hop.state): None for hops in steps.values() for hop in hops}), passed + 1
        seen.update(layer)


def _towards(layers: Sequence[_Layer], last: tuple[int, int]) -> Sequence[_Layer]:
    """Return the layers with those steps alone that lie on a shortest way to `last`."""
    wanted, kept = {last}, []
    for layer in reversed(layers):
        on_way = {node: [s for s in steps if (s.node, s.state) in wanted] for node, steps in layer.items()}
        kept.append({node: steps for node, steps in on_way.items() if steps})
        wanted = set(kept[-1])
    return kept[::-1]


def _smallest(start: tuple[int, int], layers: Sequence[_Layer]) -> tuple[Hop, ...]:
    """Return the walk that takes, step by step, the first neighbour by name: what was passed follows from the names."""
    walk, node = [], start
    for layer in layers:
        step = layer[node][0]
        walk.append(step)
        node = (step.node, step.state)
    return tuple(walk)

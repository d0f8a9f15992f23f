"""Routes, rings and what an exchange over them gets (specification: ring, route, route-policies)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.network.route_policy import RoutePolicy


@dataclass(frozen=True, slots=True)
class ExchangeTerms:
    """The links, rate and latency of every transfer of a placed job.

    `links`: numbers of the links in the cluster's list; none on a single server.
    """

    links: frozenset[int]
    rate: int
    latency_us: int


class RouteFinder:
    """The cluster's links, walked breadth first.

    `policy`: which of its policies the routes keep; None for none.
    """

    def __init__(self, cluster: Cluster, policy: str | None = None) -> None:
        self._cluster = cluster
        self._policy = (cluster.route_policies or {}).get(policy or "")
        self._neighbours: dict[str, list[tuple[str, int]]] = {s.name: [] for s in cluster.servers}
        self._neighbours.update((switch, []) for switch in cluster.switches)
        for number, link in enumerate(cluster.links):
            for end, other in (link.ends, link.ends[::-1]):
                self._neighbours[end].append((other, number))
        # Routes are the least by names, whatever the order of the links in the document (specification: route).
        for found in self._neighbours.values():
            found.sort()
        self._trees: dict[str, dict[str, tuple[str, int]]] = {}
        self._walks: dict[tuple[str, str], list[int] | None] = {}
        self._exchanges: dict[tuple[tuple[int, int], ...], ExchangeTerms | None] = {}

    def exchange(self, servers: Sequence[int]) -> ExchangeTerms | None:
        """Return what an exchange among workers gets on `servers` (one number each); None where a route is missing."""
        counts = tuple(sorted(Counter(servers).items()))
        if counts not in self._exchanges:
            self._exchanges[counts] = self._work_out(counts)
        return self._exchanges[counts]

    def _work_out(self, counts: tuple[tuple[int, int], ...]) -> ExchangeTerms | None:
        ring = [server for server, _ in counts]
        if len(ring) == 1:
            fabric = self._cluster.servers[ring[0]]
            return ExchangeTerms(frozenset(), fabric.fabric_bandwidth, fabric.fabric_latency_us)
        if any(self._route(one, other) is None for one, other in combinations(ring, 2)):
            return None
        links: set[int] = set()
        # The ring goes through the servers in the cluster's order and back to the first (specification: transfer).
        for one, next_one in zip(ring, ring[1:] + ring[:1]):
            # A route is the one that is found from the server that stands first in the cluster.
            route = self._route(min(one, next_one), max(one, next_one))
            assert route is not None, "any two of them are joined"
            links.update(route)
        used = [self._cluster.links[number] for number in links]
        # A fabric is used where two or more workers are on the server.
        shared = [self._cluster.servers[server] for server, workers in counts if workers >= 2]
        rates = [link.bandwidth for link in used] + [server.fabric_bandwidth for server in shared]
        latencies = [link.latency_us for link in used] + [server.fabric_latency_us for server in shared]
        return ExchangeTerms(frozenset(links), min(rates), max(latencies))

    def passage(self, one: int, other: int) -> ExchangeTerms | None:
        """Return what a transfer from one server to another gets, or None without a route.

        Only the links of the route count, and on one server its fabric (specification:
        durations-of-task-graph-operations).
        """
        if one == other:
            return self.exchange([one])
        route = self._route(min(one, other), max(one, other))
        if route is None:
            return None
        used = [self._cluster.links[number] for number in route]
        rate, latency_us = min(link.bandwidth for link in used), max(link.latency_us for link in used)
        return ExchangeTerms(frozenset(route), rate, latency_us)

    def _route(self, first: int, second: int) -> list[int] | None:
        start, position = self._cluster.servers[first].name, self._cluster.servers[second].name
        if self._policy is not None:
            return self._compliant(start, position, self._policy)
        tree = self._tree(start)
        if position not in tree:
            return None
        route = []
        while position != start:
            position, link = tree[position]
            route.append(link)
        return route

    def _compliant(self, start: str, end: str, policy: RoutePolicy) -> list[int] | None:
        """Return the least walk that keeps a policy: of walks to one name past the same groups, the least goes on."""
        key = (start, end)
        if key not in self._walks:
            self._walks[key] = self._walk(start, end, policy)
        return self._walks[key]

    def _walk(self, start: str, end: str, policy: RoutePolicy) -> list[int] | None:
        shut = set(policy.avoid or ()) - {start, end}
        closed = {n for n, link in enumerate(self._cluster.links) if link.name in (policy.avoid_links or ())}
        groups = [set(group) for group in policy.via or ()]

        def passed(names: Sequence[str]) -> tuple[str, tuple[bool, ...]]:
            return names[-1], tuple(not group.isdisjoint(names) for group in groups)

        # Breadth first, all walks of one length at a time: to each name, with the same groups passed, only the least
        # sequence of names is kept.
        walks = {passed([start]): ([start], list[int]())}
        known = set(walks)
        while walks:
            if (end, (True,) * len(groups)) in walks:
                return walks[end, (True,) * len(groups)][1]
            longer: dict[tuple[str, tuple[bool, ...]], tuple[list[str], list[int]]] = {}
            for names, used in walks.values():
                for there, link in self._neighbours[names[-1]]:
                    grown = [*names, there]
                    place = passed(grown)
                    if there in shut or link in closed or place in known or len(used) == policy.max_links:
                        continue
                    if place not in longer or grown < longer[place][0]:
                        longer[place] = (grown, [*used, link])
            known |= set(longer)
            walks = longer
        return None

    def _tree(self, start: str) -> dict[str, tuple[str, int]]:
        """Return where each reachable name is reached from, and over which link.

        Names of one distance leave the queue in the order of the smallest paths to them, because
        neighbours join it in the order of their names; so whoever reaches a name first does so on the smallest path.
        """
        if start not in self._trees:
            tree = {start: (start, -1)}
            queue = deque([start])
            while queue:
                visited = queue.popleft()
                for there, link in self._neighbours[visited]:
                    if there not in tree:
                        tree[there] = (visited, link)
                        queue.append(there)
            self._trees[start] = tree
        return self._trees[start]

"""Servers, links and routes (specification: cluster, ring, route)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from jigsaw_opt.problem.route_policy import RoutePolicy
from jigsaw_opt.problem.walks import LinkGraph, PolicyAutomaton, least_walk

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Channel", "Cluster", "Link", "Routes", "Server", "joined_parts"]


@dataclass(frozen=True, slots=True)
class Server:
    """A machine whose GPUs are all of one type.

    Parameters
    ----------
    name, gpu_type
        Its name and the type of its GPUs.
    gpus
        How many GPUs it has.
    gpu_memory
        Bytes of memory of each GPU.
    fabric_bandwidth
        Bytes per second between two of its GPUs.
    fabric_latency_us
        Latency between two of its GPUs.
    """

    name: str
    gpu_type: str
    gpus: int
    gpu_memory: int
    fabric_bandwidth: int
    fabric_latency_us: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two servers or switches; both directions are one resource.

    Parameters
    ----------
    name
        Its name.
    ends
        The names of the two things that it joins.
    bandwidth
        Bytes per second.
    latency_us
        Latency of one step over it.
    """

    name: str
    ends: tuple[str, str]
    bandwidth: int
    latency_us: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers, switches and the links between them.

    Parameters
    ----------
    servers, switches, links
        Its parts; switches are names.
    route_policies
        By name, what routes of the jobs that name it must keep; None where none are stated.
    """

    servers: tuple[Server, ...]
    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    route_policies: Mapping[str, RoutePolicy] | None = None

    @property
    def gpu_count(self) -> int:
        """Number of GPUs of all servers."""
        return sum(server.gpus for server in self.servers)

    def gpu_name(self, server: int, index: int) -> str:
        """Name of GPU `index` of server number `server` (specification: cluster)."""
        return f"{self.servers[server].name}/{index}"


@dataclass(frozen=True, slots=True)
class Channel:
    """What the transfers of a placed job use (specification: ring).

    Parameters
    ----------
    links
        Indices of the links used, ascending; empty on a single server.
    rate
        Bytes per second.
    latency_us
        Latency of one step.
    """

    links: tuple[int, ...]
    rate: int
    latency_us: int


class Routes:
    """Routes between servers and rings over them, worked out when asked for and kept.

    Parameters
    ----------
    cluster
        The cluster whose links are followed.
    policy
        What the routes must keep; None for nothing.
    """

    def __init__(self, cluster: Cluster, policy: RoutePolicy | None = None) -> None:
        self.cluster, self.policy = cluster, policy
        self._under: dict[str, Routes] = {}
        self._distances: dict[str, dict[str, int]] = {}
        self._routes: dict[tuple[int, int], tuple[int, ...] | None] = {}
        self._rings: dict[tuple[int, ...], tuple[int, ...] | None] = {}

    def under(self, name: str | None) -> Routes:
        """The routes of jobs that name a policy of the cluster; of others these."""
        if name is None:
            return self
        if name not in self._under:
            self._under[name] = Routes(self.cluster, (self.cluster.route_policies or {})[name])
        return self._under[name]

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """Servers and switches as nodes, links as edges with their index as ``link``."""
        import networkx as nx

        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(server.name for server in self.cluster.servers)
        graph.add_nodes_from(self.cluster.switches)
        for index, link in enumerate(self.cluster.links):
            graph.add_edge(*link.ends, link=index)
        return graph

    @cached_property
    def component(self) -> tuple[int, ...]:
        """For each server, the number of the connected part of the cluster that it is in."""
        part = joined_parts(self.cluster, self.cluster.links)
        return tuple(part[server.name] for server in self.cluster.servers)

    def between(self, first: int, second: int) -> tuple[int, ...] | None:
        """Links of the route between two different servers, or None where there is no path.

        The path with fewest links; among those the smallest sequence of names walked from
        the server that stands first in the cluster (specification: route). Under a policy,
        the least walk that keeps it, which may use a link twice (specification: route-policies).
        """
        key = (first, second) if first < second else (second, first)
        if key not in self._routes:
            self._routes[key] = self._walk(*key) if self.policy is None else self._compliant(*key, self.policy)
        return self._routes[key]

    def ring(self, servers: Sequence[int]) -> tuple[int, ...] | None:
        """Links, ascending, on the closed ring over servers given in ascending order; None without a path."""
        key = tuple(servers)
        if key not in self._rings:
            self._rings[key] = self._close(key)
        return self._rings[key]

    def channel(self, workers: Mapping[int, int]) -> Channel | None:
        """Channel of a job with `workers` workers on each server, or None without a path.

        Parameters
        ----------
        workers
            Number of workers (at least 1) by index of the server.
        """
        servers = sorted(workers)
        all_servers = self.cluster.servers
        if len(servers) == 1:
            only = all_servers[servers[0]]
            return Channel((), only.fabric_bandwidth, only.fabric_latency_us)
        links = self.ring(servers)
        if links is None:
            return None
        shared = [all_servers[s] for s in servers if workers[s] >= 2]
        used = [self.cluster.links[k] for k in links]
        rate = min([link.bandwidth for link in used] + [server.fabric_bandwidth for server in shared])
        latency = max([link.latency_us for link in used] + [server.fabric_latency_us for server in shared])
        return Channel(links, rate, latency)

    def _walk(self, first: int, second: int) -> tuple[int, ...] | None:
        start, goal = self.cluster.servers[first].name, self.cluster.servers[second].name
        distance = self._distances_to(goal)
        if start not in distance:
            return None
        route, here = [], start
        while here != goal:
            nearer = min(name for name in self.graph[here] if distance.get(name) == distance[here] - 1)
            route.append(self.graph[here][nearer]["link"])
            here = nearer
        return tuple(route)

    @cached_property
    def _links(self) -> LinkGraph:
        names = [*(server.name for server in self.cluster.servers), *self.cluster.switches]
        return LinkGraph(names, ((link.name, link.ends) for link in self.cluster.links))

    def _compliant(self, first: int, second: int, policy: RoutePolicy) -> tuple[int, ...] | None:
        ends = [self._links.number[self.cluster.servers[server].name] for server in (first, second)]
        automaton = PolicyAutomaton(policy, self._links, ends)
        start = (ends[0], automaton.enter(0, ends[0]))
        walk = least_walk(self._links, automaton, start, ends[1], max_links=policy.max_links)
        return None if walk is None else tuple(hop.link for hop in walk)

    def _distances_to(self, goal: str) -> dict[str, int]:
        if goal not in self._distances:
            import networkx as nx

            self._distances[goal] = dict(nx.single_source_shortest_path_length(self.graph, goal))
        return self._distances[goal]

    def _close(self, servers: tuple[int, ...]) -> tuple[int, ...] | None:
        if self.policy is not None and any(self.between(*pair) is None for pair in combinations(servers, 2)):
            return None  # Two servers may each have a compliant route to a third and none to one another.
        links: set[int] = set()
        neighbours = zip(servers, servers[1:] + servers[:1], strict=True)
        for first, second in neighbours if len(servers) > 1 else ():
            route = self.between(first, second)
            if route is None:
                return None
            links.update(route)
        return tuple(sorted(links))


def joined_parts(cluster: Cluster, links: Iterable[Link]) -> dict[str, int]:
    """Number of the part that each server and each switch is in where only `links` join the cluster."""
    names = [server.name for server in cluster.servers] + list(cluster.switches)
    number = {name: k for k, name in enumerate(names)}
    parent = list(range(len(names)))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for link in links:
        first, second = (root(number[end]) for end in link.ends)
        parent[first] = second
    return {name: root(k) for name, k in number.items()}

"""Servers, links and routes (specification: cluster, ring, route)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.errors import unsupported
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.network.walks import LinkGraph, PolicyAutomaton, least_walk, walk_lengths
from jigsaw_opt.problem.power import PowerCap, caps_without
from jigsaw_opt.problem.rules.keyed import altered

if TYPE_CHECKING:
    import networkx as nx

from jigsaw_opt.problem.rules.part import CheckedPart


@dataclass(frozen=True, slots=True)
class Server(CheckedPart, definition="server"):
    """A machine whose GPUs are all of one type.

    Parameters
    ----------
    name, gpu_type
        Its name and the type of its GPUs.
    gpus
        Number of its GPUs.
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
class Link(CheckedPart, definition="link"):
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


class GpuIndex:
    """The GPUs of a cluster, numbered from 0 server by server; each list is made when first asked for.

    `servers`: the servers, in the order of the cluster.
    """

    def __init__(self, servers: tuple[Server, ...]) -> None:
        self._servers = servers

    def __len__(self) -> int:
        return len(self.server_of)

    @cached_property
    def of_server(self) -> tuple[range, ...]:
        """Numbers of the GPUs of each server."""
        bounds = accumulate((server.gpus for server in self._servers), initial=0)
        return tuple(range(first, last) for first, last in pairwise(bounds))

    @cached_property
    def server_of(self) -> tuple[int, ...]:
        """Number of the server of each GPU."""
        return tuple(s for s, gpus in enumerate(self.of_server) for _ in gpus)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Type of each GPU."""
        return tuple(server.gpu_type for server in self._servers for _ in range(server.gpus))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Number of the server of each GPU, and its own number there."""
        return tuple((s, k) for s, gpus in enumerate(self.of_server) for k in range(len(gpus)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each GPU (specification: cluster)."""
        return tuple(f"{self._servers[s].name}/{k}" for s, k in self.places)

    @cached_property
    def place_of(self) -> Mapping[str, tuple[int, int]]:
        """Server and own number of each GPU, as in `places`, by its name."""
        return dict(zip(self.names, self.places, strict=True))


@dataclass(frozen=True)
class Cluster(CheckedPart, definition="cluster"):
    """Servers, switches and the links between them.

    Parameters
    ----------
    servers, switches, links
        Its parts; switches are names.
    route_policies
        Conditions on the routes of the jobs that name them, by name; None where none are stated.
    power_caps
        Limits on what running blocks draw; None where none are stated.
    licences
        How many there are of each licence, by name; None where none are stated.
    """

    servers: tuple[Server, ...]
    switches: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    route_policies: Mapping[str, RoutePolicy] | None = None
    power_caps: tuple[PowerCap, ...] | None = None
    licences: Mapping[str, int] | None = None

    @property
    def capacities(self) -> tuple[PowerCap, ...]:
        """Its cumulative capacities: what blocks on some of its servers may take together at any moment."""
        return self.power_caps or ()

    @property
    def limits(self) -> list[tuple[str, str]]:
        """Its power caps and licences: the key of each in documents, and its kind and name."""
        caps = [("power_caps", f"power cap {cap.name!r}") for cap in self.capacities]
        return [*caps, *(("licences", f"licence {name!r}") for name in self.licences or ())]

    def require_no_capacities(self, why: str) -> None:
        """Refuse power caps and licences, for whoever keeps none.

        Parameters
        ----------
        why
            Who that is, as a sentence.

        Raises
        ------
        UsageError
            It has some.
        """
        for key, limit in self.limits:
            raise unsupported(key, f"the cluster has {limit}; {why}")

    @cached_property
    def gpus(self) -> GpuIndex:
        """The GPUs of all servers by number."""
        return GpuIndex(self.servers)

    @property
    def gpu_count(self) -> int:
        """Number of GPUs of all servers."""
        return sum(server.gpus for server in self.servers)

    def gpu_name(self, server: int, index: int) -> str:
        """Return the name of GPU `index` of server number `server` (specification: cluster).

        Parameters
        ----------
        server
            Number of the server, from 0.
        index
            Number of the GPU in the server, from 0.
        """
        return f"{self.servers[server].name}/{index}"

    def without(self, links: Collection[str] = (), servers: Collection[str] = ()) -> Cluster:
        """Return the cluster without some links and servers, by name, as an instance may have it.

        Links at a server go with it. Route policies stay and mean the same: they name no link that is gone, and a
        server that is gone leaves a switch without links in its place, which no route passes.

        Parameters
        ----------
        links
            Names of links that are gone.
        servers
            Names of servers that are gone.
        """
        gone = {link.name for link in self.links if link.name in links or not set(servers).isdisjoint(link.ends)}
        policies = self.route_policies
        if policies is not None:
            policies = {name: policy.without_links(gone) for name, policy in policies.items()}
        return altered(
            self,
            servers=tuple(server for server in self.servers if server.name not in servers),
            switches=(*self.switches, *(server.name for server in self.servers if server.name in servers)),
            links=tuple(link for link in self.links if link.name not in gone),
            route_policies=policies,
            power_caps=caps_without(self.power_caps, servers),
        )


@dataclass(frozen=True, slots=True)
class Channel:
    """The links, rate and latency of a placed job's transfers (specification: ring).

    `links`: indices of the links used, ascending; empty on a single server.
    """

    links: tuple[int, ...]
    rate: int
    latency_us: int


class Routes:
    """Routes between servers and rings over them, worked out when asked for and kept.

    `cluster`: the cluster whose links are followed. `policy`: what the routes must keep; None for nothing.
    """

    def __init__(self, cluster: Cluster, policy: RoutePolicy | None = None) -> None:
        self.cluster, self.policy = cluster, policy
        self._under: dict[str, Routes] = {}
        self._distances: dict[str, dict[str, int]] = {}
        self._routes: dict[tuple[int, int], tuple[int, ...] | None] = {}
        self._rings: dict[tuple[int, ...], tuple[int, ...] | None] = {}
        self._lengths: dict[int, dict[int, int]] = {}

    def under(self, name: str | None) -> Routes:
        """Return the routes of jobs that name a policy of the cluster; for None, these routes."""
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
    def links(self) -> tuple[Link, ...]:
        """Links that routes may use; under a policy, none that it avoids or that leads to a switch that it avoids."""
        if self.policy is None:
            return self.cluster.links
        links = set(self.policy.avoid_links or ())
        nodes = set(self.policy.avoid or ()).intersection(self.cluster.switches)
        return tuple(link for link in self.cluster.links if link.name not in links and nodes.isdisjoint(link.ends))

    @cached_property
    def component(self) -> tuple[int, ...]:
        """For each server, the number of the part of the cluster that it is in, as links that routes may use join it.

        A route joins any two servers of one part. Under a policy it may not: `joined` says which ones.
        """
        part = joined_parts(self.cluster, self.links)
        return tuple(part[server.name] for server in self.cluster.servers)

    def joined(self, first: int, second: int) -> bool:
        """Return whether two servers may hold workers of one job: they are the same, or a route leads between them."""
        if self.policy is None or first == second:
            return self.component[first] == self.component[second]
        return second in self.lengths(first)

    def all_joined(self, servers: Collection[int]) -> bool:
        """Return whether any two of some servers are joined."""
        if self.policy is None:
            return len({self.component[server] for server in servers}) <= 1
        return all(self.joined(*pair) for pair in combinations(servers, 2))

    def apart(self, servers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the numbers of two servers of one part that are not joined, which only a policy has."""
        for first, second in combinations(servers, 2) if self.policy is not None else ():
            if self.component[first] == self.component[second] and not self.joined(first, second):
                yield first, second

    def joins(self, server: int, others: Sequence[int]) -> bool:
        """Return whether a server is joined to each of some others, any two of which are joined."""
        return all(self.joined(server, other) for other in (others[:1] if self.policy is None else others))

    def mutual(self, servers: Iterable[int]) -> Iterator[int]:
        """Build a clique greedily: keep a server if it is joined to every server kept so far."""
        kept: list[int] = []
        for server in servers:
            if self.joins(server, kept):
                kept.append(server)
                yield server

    def lengths(self, server: int) -> dict[int, int]:
        """Return the number of links of the route to each other server that is joined to one."""
        if server not in self._lengths:
            found = self._lengths_from(server) if self.cluster.links else {}
            self._lengths[server] = {other: found[other] for other in sorted(found) if other != server}
        return self._lengths[server]

    def between(self, first: int, second: int) -> tuple[int, ...] | None:
        """Return the links of the route between two different servers, or None where there is no path.

        It is the path with fewest links, and among those the smallest sequence of names, walked from the server that
        stands first in the cluster (specification: route). Under a policy, it is the least walk that keeps the
        policy, which may use a link twice (specification: route-policies).
        """
        key = (first, second) if first < second else (second, first)
        if key not in self._routes:
            self._routes[key] = self._walk(*key) if self.policy is None else self._compliant(*key, self.policy)
        return self._routes[key]

    def ring(self, servers: Sequence[int]) -> tuple[int, ...] | None:
        """Return the links, ascending, on the closed ring over servers in ascending order; None without a path."""
        key = tuple(servers)
        if key not in self._rings:
            self._rings[key] = self._close(key)
        return self._rings[key]

    def channel(self, workers: Mapping[int, int]) -> Channel | None:
        """Return the channel of a job with `workers` workers on each server, or None without a path."""
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
        route, node = [], start
        while node != goal:
            # Among all shortest paths, the first name at each step gives the smallest sequence of names.
            nearer = min(name for name in self.graph[node] if distance.get(name) == distance[node] - 1)
            route.append(self.graph[node][nearer]["link"])
            node = nearer
        return tuple(route)

    def _lengths_from(self, server: int) -> dict[int, int]:
        number = {each.name: s for s, each in enumerate(self.cluster.servers)}
        if self.policy is None:
            distances = self._distances_to(self.cluster.servers[server].name)
            return {number[name]: length for name, length in distances.items() if name in number}
        start = self._link_graph.number[self.cluster.servers[server].name]
        automaton = PolicyAutomaton(self.policy, self._link_graph, (start,))
        walks = walk_lengths(self._link_graph, automaton, (start, automaton.enter(0, start)), self.policy.max_links)
        names = self._link_graph.nodes
        found = {number[names[node]]: length for node, length in walks.items() if names[node] in number}
        for other in {number[name] for name in self.policy.avoid or () if name in number} - {server}:
            route = self.between(server, other)  # As an end it may be entered, and only then.
            if route is not None:
                found[other] = len(route)
        return found

    @cached_property
    def _link_graph(self) -> LinkGraph:
        names = [*(server.name for server in self.cluster.servers), *self.cluster.switches]
        return LinkGraph(names, ((link.name, link.ends) for link in self.cluster.links))

    def _compliant(self, first: int, second: int, policy: RoutePolicy) -> tuple[int, ...] | None:
        ends = [self._link_graph.number[self.cluster.servers[server].name] for server in (first, second)]
        automaton = PolicyAutomaton(policy, self._link_graph, ends)
        start = (ends[0], automaton.enter(0, ends[0]))
        walk = least_walk(self._link_graph, automaton, start, ends[1], max_links=policy.max_links)
        return None if walk is None else tuple(hop.link for hop in walk)

    def _distances_to(self, goal: str) -> dict[str, int]:
        if goal not in self._distances:
            import networkx as nx

            self._distances[goal] = dict(nx.single_source_shortest_path_length(self.graph, goal))
        return self._distances[goal]

    def _close(self, servers: tuple[int, ...]) -> tuple[int, ...] | None:
        if not self.all_joined(servers):
            return (
                None  # Under a policy, two servers may each have a compliant route to a third and none to one another.
            )
        links: set[int] = set()
        neighbours = zip(servers, servers[1:] + servers[:1], strict=True)
        for first, second in neighbours if len(servers) > 1 else ():
            route = self.between(first, second)
            assert route is not None, "all of them are joined"
            links.update(route)
        return tuple(sorted(links))


def joined_parts(cluster: Cluster, links: Iterable[Link]) -> dict[str, int]:
    """Return the number of the connected part that each server and each switch is in where only `links` join them.

    By name; two names have the same number exactly where a path joins them.
    """
    names = [server.name for server in cluster.servers] + list(cluster.switches)
    number = {name: k for k, name in enumerate(names)}
    parent = list(range(len(names)))

    def root(k: int) -> int:
        while parent[k] != k:
            # Path halving: every node that is passed points to its grandparent from then on.
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for link in links:
        first, second = (root(number[end]) for end in link.ends)
        parent[first] = second
    return {name: root(k) for name, k in number.items()}

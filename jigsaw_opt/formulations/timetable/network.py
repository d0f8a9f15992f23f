"""Routes as the models need them, and jobs and servers that could be swapped without effect."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import cast

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.rules.keyed import altered


class RoutedNetwork:
    """The routes of all jobs, and the links that are bridges."""

    def __init__(self, eligibility: GpuEligibility) -> None:
        self.eligibility = eligibility
        self.cluster = eligibility.operations.cluster

    @cached_property
    def sides(self) -> dict[int, frozenset[int]]:
        """For each link that is the only way between its ends, the servers on one side of it."""
        import networkx as nx

        routes = self.eligibility.operations.routes
        servers = {server.name: s for s, server in enumerate(self.cluster.servers)}
        graph = routes.graph.copy()
        sides = {}
        # The published types say that bridges are nodes; they are edges.
        for first, second in cast("list[tuple[str, str]]", list(nx.bridges(graph))):
            link = graph[first][second]["link"]
            graph.remove_edge(first, second)
            sides[link] = frozenset(servers[n] for n in nx.node_connected_component(graph, first) if n in servers)
            graph.add_edge(first, second, link=link)
        return sides

    def routes(self, job: OperationGraph, servers: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Return for each link the pairs of the given servers between which the route of a job uses it."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        for pair in combinations(servers, 2):
            # A walk that keeps a policy may use a link twice.
            for link in dict.fromkeys(self.eligibility.routes(job).between(*pair) or ()):
                pairs.setdefault(link, []).append(pair)
        return pairs

    def side(self, job: OperationGraph, link: int) -> frozenset[int] | None:
        """Return the servers on one side of a link that routes of a job use exactly from one side to the other."""
        return self.sides.get(link) if job.route_policy is None else None


def identical_jobs(operations: Operations) -> list[list[int]]:
    """Return the jobs in groups that differ in nothing but their name."""
    groups: list[list[int]] = []
    capacities = operations.instance.scarce_capacities
    nameless = [(replace(job, name=""), [own.amounts.get(job.name) for own in capacities]) for job in operations.jobs]
    for j, job in enumerate(nameless):
        group = next((group for group in groups if nameless[group[0]] == job), None)
        if group is None:
            groups.append([j])
        else:
            group.append(j)
    return groups


def identical_servers(network: RoutedNetwork) -> list[list[int]]:
    """Return the servers in groups whose swap changes nothing: alike, on equal links to one neighbour.

    In a ring over a cluster without cycles the order of the servers is of no effect; elsewhere it decides
    which routes are taken, and every server is a group of its own, as where policies or power caps name servers.
    """
    cluster = network.cluster
    policed = network.eligibility.operations.instance.policed
    # In a forest every route is the only path, so two leaves at one neighbour may change places. Policies and power
    # caps name servers, and a swap might change what they say.
    forest = len(network.sides) == len(cluster.links) and not policed and not cluster.capacities
    groups: dict[Hashable, list[int]] = {}
    for s, server in enumerate(cluster.servers):
        cables = [
            (end, link.bandwidth, link.latency_us)
            for link in cluster.links
            for end in link.ends
            if server.name in link.ends and end != server.name
        ]
        alike = forest and len(cables) <= 1
        groups.setdefault((altered(server, name=""), *cables) if alike else s, []).append(s)
    return list(groups.values())

"""The part of a cluster that a share has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

from jigsaw_opt.problem.cluster import Cluster, Routes
from jigsaw_opt.problem.rules.keyed import altered

__all__ = ["Place", "Places"]

Place = tuple[tuple[int, int], ...]
"""Servers by number with the GPUs used of each, ascending."""


class Places:
    """The places of GPUs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self._routes = cluster, Routes(cluster)
        self._server_of = cluster.gpus.server_of

    def of(self, gpus: Iterable[int]) -> Place:
        """Return the place of some GPUs, given by their numbers in the cluster."""
        return tuple(sorted(Counter(self._server_of[gpu] for gpu in gpus).items()))

    def part(self, place: Place) -> Cluster:
        """Return the servers of a place with the GPUs used of them, and the links between them.

        Other servers that routes between them pass through are switches there.
        """
        cluster = self.cluster
        servers = tuple(altered(cluster.servers[number], gpus=used) for number, used in place)
        if len(servers) == 1:
            return Cluster(servers)
        own, names = {server.name for server in servers}, set(cluster.switches)
        for first, second in combinations((number for number, _ in place), 2):
            for link in self._routes.between(first, second) or ():
                names.update(cluster.links[link].ends)
        passed = tuple(server.name for server in cluster.servers if server.name in names - own)
        links = tuple(link for link in cluster.links if (own | names).issuperset(link.ends))
        return Cluster(servers, (*cluster.switches, *passed), links)

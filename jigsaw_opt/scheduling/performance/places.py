"""The part of a cluster that a share has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from jigsaw_opt.problem.cluster import Cluster

__all__ = ["Place", "Places"]

Place = tuple[tuple[int, int], ...]
"""Servers by number with the GPUs used of each, ascending."""


class Places:
    """Where GPUs are.

    Parameters
    ----------
    cluster
        The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._server_of = [k for k, server in enumerate(cluster.servers) for _ in range(server.gpus)]

    def of(self, gpus: Iterable[int]) -> Place:
        """The place of some GPUs, given by their numbers in the cluster."""
        return tuple(sorted(Counter(self._server_of[gpu] for gpu in gpus).items()))

    def part(self, place: Place) -> Cluster:
        """The servers of a place with the GPUs used of them, and the links between them."""
        cluster = self.cluster
        servers = tuple(replace(cluster.servers[number], gpus=used) for number, used in place)
        if len(servers) == 1:
            return Cluster(servers)
        names = {server.name for server in servers} | set(cluster.switches)
        links = tuple(link for link in cluster.links if names.issuperset(link.ends))
        return Cluster(servers, cluster.switches, links)

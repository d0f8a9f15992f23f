"""The fabric that packets cross: nodes, links and how long each link takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.walks import LinkGraph

__all__ = ["Fabric", "fabric_of"]


@dataclass(frozen=True)
class Fabric:
    """Nodes and links.

    `ends`: names of the nodes at which flows begin and end. `latency_us`: for each link, the microseconds that a packet
    takes over it, at least 1.
    """

    name: str
    ends: tuple[str, ...]
    graph: LinkGraph
    latency_us: tuple[int, ...]

    @classmethod
    def alike(
        cls,
        name: str,
        ends: Iterable[str],
        others: Iterable[str],
        pairs: Iterable[tuple[str, str]],
        latency_us: int = 1,
    ) -> Fabric:
        """Build a fabric of links that all take the same time, each named by its two ends as in ``a--b``."""
        first = tuple(ends)
        links = [(f"{a}--{b}", (a, b)) for a, b in pairs]
        return cls(name, first, LinkGraph((*first, *others), links), (latency_us,) * len(links))


def fabric_of(cluster: Cluster, name: str = "cluster") -> Fabric:
    """Return the servers, switches and links of a cluster as a fabric; a latency of 0 counts as 1 us."""
    servers = tuple(server.name for server in cluster.servers)
    graph = LinkGraph((*servers, *cluster.switches), ((link.name, link.ends) for link in cluster.links))
    return Fabric(name, servers, graph, tuple(max(1, link.latency_us) for link in cluster.links))

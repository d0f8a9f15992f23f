"""Ways to join servers by links, and how large an instance is made at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import MOST_GPUS

Topology = Callable[[Sequence[Server], int, int], Cluster]
"""Servers, bandwidth of a server's link in bytes per second, and its latency in microseconds."""

_RACK_SERVERS = 8
_UPLINK_FACTOR = 4


def separate(servers: Sequence[Server], bandwidth: int, latency_us: int) -> Cluster:
    """Return servers without links: every job stays on one server."""
    return Cluster(tuple(servers))


def star(servers: Sequence[Server], bandwidth: int, latency_us: int) -> Cluster:
    """Join all servers by one switch."""
    links = (Link(server.name, (server.name, "switch"), bandwidth, latency_us) for server in servers)
    return Cluster(tuple(servers), ("switch",), tuple(links))


def line(servers: Sequence[Server], bandwidth: int, latency_us: int) -> Cluster:
    """Join each server to the next by a cable; far neighbours are reached through servers."""
    pairs = pairwise(server.name for server in servers)
    return Cluster(tuple(servers), (), tuple(_cable(a, b, bandwidth, latency_us) for a, b in pairs))


def ring(servers: Sequence[Server], bandwidth: int, latency_us: int) -> Cluster:
    """Close a line by a cable from the last server to the first; fewer than three servers leave it a line.

    `bandwidth`: bytes a second of a server's link.
    """
    cluster = line(servers, bandwidth, latency_us)
    if len(servers) < 3:
        return cluster
    closing = _cable(servers[-1].name, servers[0].name, bandwidth, latency_us)
    return Cluster(cluster.servers, (), (*cluster.links, closing))


def tree(servers: Sequence[Server], bandwidth: int, latency_us: int) -> Cluster:
    """Put racks of up to eight servers, at least two, behind one switch each, and a spine that joins the racks.

    The uplink of a rack has four times the bandwidth of a server's link.

    `bandwidth`: bytes a second of a server's link.
    """
    size = min(_RACK_SERVERS, -(-len(servers) // 2))
    racks = tuple(f"rack{number}" for number in range(-(-len(servers) // size)))
    down = [
        Link(server.name, (server.name, racks[index // size]), bandwidth, latency_us)
        for index, server in enumerate(servers)
    ]
    up = [Link(rack, (rack, "spine"), _UPLINK_FACTOR * bandwidth, latency_us) for rack in racks]
    return Cluster(tuple(servers), (*racks, "spine"), (*down, *up))


def _cable(first: str, second: str, bandwidth: int, latency_us: int) -> Link:
    return Link(f"{first}-{second}", (first, second), bandwidth, latency_us)


TOPOLOGIES: Mapping[str, Topology] = {t.__name__: t for t in (separate, star, line, ring, tree)}
"""Topologies by name."""


def require_size(gpus: int, workers: int = 0) -> None:
    """Refuse what would be made with more GPUs or workers than memory is likely to hold."""
    if max(gpus, workers) > MOST_GPUS:
        asked = f"{gpus:,} GPUs" + (f" and {workers:,} workers" if workers else "")
        raise UsageError(
            f"an instance is made with {MOST_GPUS:,} GPUs and as many workers at most, not {asked}", code="too-large"
        )

"""The packing problem: which jobs of a queue share which GPUs of a cluster.

Servers come in types and jobs in classes, each with a number, so that a cluster of any size is a few lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.depth import Depth, FullDepth
from jigsaw_opt.problem.model import Model


@dataclass(frozen=True, slots=True)
class ServerType:
    """Servers that are alike.

    `bandwidth, latency_us`: bytes a second and latency of the link from each to a switch that joins all of them without
    contention of its own; bandwidth 0 for none.
    """

    server: Server
    count: int
    bandwidth: int = 0
    latency_us: int = 0

    def group(self, servers: int, gpus: int) -> Cluster:
        """Return a cluster of servers of this type with GPUs in use, as evenly spread as they go."""
        share, rest = divmod(gpus, servers)
        own = self.server
        alike = [
            Server(
                f"s{k}", own.gpu_type, share + (k < rest), own.gpu_memory, own.fabric_bandwidth, own.fabric_latency_us
            )
            for k in range(servers)
        ]
        if servers == 1:
            return Cluster(tuple(alike))
        links = (Link(f"l{k}", (f"s{k}", "switch"), self.bandwidth, self.latency_us) for k in range(servers))
        return Cluster(tuple(alike), ("switch",), tuple(links))


_FULL = FullDepth()


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """Queued jobs that are alike.

    `name`: name of the class, by which one round remembers another. `model, workers`: name of their model, and the
    workers of each. `weight`: what a unit of normalised progress of one of them is worth. The progress of a job is its
    rate divided by the rate that it has alone at full depth on the fastest type of GPU that can run it. `depths`: depth
    rules of which each may take one where it shares GPUs; alone it is at full depth.
    """

    name: str
    model: str
    workers: int
    count: int
    weight: float
    depths: tuple[Depth, ...] = (_FULL,)


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """A cluster and a queue."""

    types: tuple[ServerType, ...]
    models: Mapping[str, Model]
    classes: tuple[QueuedJobs, ...]

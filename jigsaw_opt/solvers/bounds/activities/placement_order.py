"""In which order slots are placed on servers, and which servers are alike."""

from __future__ import annotations

from collections import Counter, defaultdict

from jigsaw_opt.problem.cluster import Cluster, joined_parts
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData


def slot_order(data: TaskGraphData) -> list[int]:
    """Return the slots of a job, those first that exchange most with the ones before them."""
    graph, number = data.graph, len(data.graph.shape.slots)
    bytes_among = Counter[tuple[int, ...]]()
    for transfer, slots in zip(graph.shape.transfers, graph.takes_part[graph.blocks :], strict=True):
        bytes_among[slots] += transfer.bytes
    among: list[list[tuple[int, ...]]] = [[] for _ in range(number)]
    total = [0] * number
    for slots, size in bytes_among.items():
        for slot in slots:
            among[slot].append(slots)
            total[slot] += size
    order, left, placed = list[int](), set(range(number)), [0] * number
    while left:
        best = max(left, key=lambda slot: (placed[slot], total[slot], -slot))
        order.append(best)
        left.remove(best)
        for slots in among[best]:
            for slot in slots:
                placed[slot] += bytes_among[slots]
    return order


def alike_servers(cluster: Cluster) -> list[int]:
    """Return a number for each server; servers of the same number may change places, with all that is on them.

    Where links close no circle, routes do not depend on names. So two servers are alike if each has just one link, of
    the same bandwidth and latency and to the same neighbour.
    """
    parts = joined_parts(cluster, cluster.links)
    if len(cluster.links) != len(parts) - len(set(parts.values())):
        return list(range(len(cluster.servers)))
    ends: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for link in cluster.links:
        for one, other in (link.ends, link.ends[::-1]):
            ends[one].append((other, link.bandwidth, link.latency_us))
    first: dict[object, int] = {}
    found = []
    for number, server in enumerate(cluster.servers):
        own = ends[server.name]
        kind = (server.gpu_type, server.gpus, server.gpu_memory, server.fabric_bandwidth, server.fabric_latency_us)
        found.append(first.setdefault((kind, *own) if len(own) <= 1 else number, number))
    return found

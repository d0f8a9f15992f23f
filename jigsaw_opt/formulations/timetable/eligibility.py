"""GPUs in one flat list, which of them each job may use, and the links between them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import cast

from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.critical import crossing_span_us, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu


class GpuEligibility:
    """GPUs in one flat list, which of them each job may use, and the links that their routes use."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        index = operations.cluster.gpus
        self.gpus: tuple[Gpu, ...] = index.places
        self.by_server = tuple(map(tuple, index.of_server))
        self.index: dict[str, int] = {name: g for g, name in enumerate(index.names)}

    def server(self, gpu: int) -> int:
        """Return the index of the server of a GPU."""
        return self.gpus[gpu][0]

    def gpu_type(self, gpu: int) -> str:
        """Return the type of a GPU."""
        return self.operations.cluster.servers[self.server(gpu)].gpu_type

    def memory(self, gpu: int) -> int:
        """Return the bytes of memory of a GPU."""
        return self.operations.cluster.servers[self.server(gpu)].gpu_memory

    def allowed(self, job: OperationGraph) -> tuple[int, ...]:
        """Return the GPUs that may hold a worker of `job`."""
        usable = usable_gpus(self.operations, job)
        if job.route_policy is not None:
            usable = _with_room(usable, self.routes(job), job.slots)
        return tuple(g for g in range(len(self.gpus)) if self.server(g) in usable)

    def may_cross(self, job: OperationGraph, most: int) -> bool:
        """Return whether workers of `job` may be on several servers and still end within `most` after its release."""
        span = crossing_span_us(self.operations, job, usable_gpus(self.operations, job))
        return span is not None and span <= most

    def routes(self, job: OperationGraph) -> Routes:
        """Return the routes of the transfers of `job`."""
        return self.operations.routes.under(job.route_policy)

    @cached_property
    def sides(self) -> dict[int, frozenset[int]]:
        """For each link that is the only way between its ends, the servers on one side of it."""
        import networkx as nx

        routes = self.operations.routes
        servers = {server.name: s for s, server in enumerate(self.operations.cluster.servers)}
        graph = routes.graph.copy()
        sides = {}
        # The published types say that bridges are nodes; they are edges.
        for first, second in cast("list[tuple[str, str]]", list(nx.bridges(graph))):
            link = graph[first][second]["link"]
            graph.remove_edge(first, second)
            sides[link] = frozenset(servers[n] for n in nx.node_connected_component(graph, first) if n in servers)
            graph.add_edge(first, second, link=link)
        return sides

    def links_between(self, job: OperationGraph, servers: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Return for each link the pairs of the given servers between which the route of a job uses it."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        for pair in combinations(servers, 2):
            # A walk that keeps a policy may use a link twice.
            for link in dict.fromkeys(self.routes(job).between(*pair) or ()):
                pairs.setdefault(link, []).append(pair)
        return pairs

    def side(self, job: OperationGraph, link: int) -> frozenset[int] | None:
        """Return the servers on one side of a link that routes of a job use exactly from one side to the other."""
        return self.sides.get(link) if job.route_policy is None else None


def _with_room(gpus: dict[int, int], routes: Routes, slots: int) -> dict[int, int]:
    """Return the servers that are joined to others of them with GPUs for so many workers, their own counted."""
    # A server that is left out may leave others with too few, so this goes on until none is.
    kept = {s: n for s, n in gpus.items() if sum(m for r, m in gpus.items() if routes.joined(s, r)) >= slots}
    return kept if len(kept) == len(gpus) else _with_room(kept, routes, slots)


def block_us(job: OperationGraph, gpu_type: str) -> tuple[int, ...]:
    """Return the duration of a block of `job` on a GPU type by level; all slots are alike."""
    return job.blocks[0].duration_us[gpu_type]

"""The quantities of SPEC section 3 and 4.5, worked out from the page and from nothing else of the package.

The rest of the package has code for the same quantities; this is a second opinion on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.model import Model

__all__ = ["ModelTable", "Network", "Path", "exchange_us"]


class Path(NamedTuple):
    """What the transfers of a placed job use: names of links, bytes per second, microseconds of latency."""

    links: tuple[str, ...]
    rate: int
    latency_us: int


def exchange_us(payload: int, contributors: int, workers: int, path: Path) -> int:
    """Duration of a transfer (SPEC section 3, *Transfer*)."""
    c, w = contributors, workers
    numerator = payload * ((c - 1) * w + (w - 1) * c) * 1_000_000
    denominator = c * w * path.rate
    whole, rest = divmod(numerator, denominator)
    return whole + (1 if rest else 0) + (c + w - 2) * path.latency_us


class ModelTable:
    """Durations, buckets and memory of a model, by level."""

    def __init__(self, model: Model) -> None:
        reversed_segments = model.segments[::-1]
        self.depth = len(model.levels)
        self.types = {
            name
            for name in model.segments[0].forward_us
            if all(name in s.forward_us and name in s.backward_us for s in model.segments)
        }
        self._model = model
        self._durations: dict[str, tuple[int, ...]] = {}
        self.state = model.state_factor * sum(s.parameter_bytes for s in model.segments)
        self.activations = tuple(
            sum(s.activation_bytes for s in reversed_segments[:kept])
            + max([s.activation_bytes for s in reversed_segments[kept:]], default=0)
            for kept in model.levels
        )
        bounds = (0, *model.levels)
        self.buckets = tuple(
            sum(s.parameter_bytes for s in reversed_segments[bounds[b] : bounds[b + 1]]) for b in range(self.depth)
        )

    def durations(self, gpu_type: str) -> tuple[int, ...]:
        """Duration of a block at levels 1 to D on `gpu_type` (SPEC section 3, *Block*)."""
        if gpu_type not in self._durations:
            forward = sum(s.forward_us[gpu_type] for s in self._model.segments)
            backward = [s.backward_us[gpu_type] for s in self._model.segments[::-1]]
            self._durations[gpu_type] = tuple(forward + sum(backward[:kept]) for kept in self._model.levels)
        return self._durations[gpu_type]


@dataclass(frozen=True, slots=True)
class _Hop:
    to: str
    link: int


class Network:
    """Routes and rings of a cluster (SPEC section 3, *Ring* and *Route*)."""

    def __init__(self, cluster: Cluster) -> None:
        self.servers = cluster.servers
        self.links = cluster.links
        self._hops: dict[str, list[_Hop]] = {}
        for number, link in enumerate(cluster.links):
            first, second = link.ends
            self._hops.setdefault(first, []).append(_Hop(second, number))
            self._hops.setdefault(second, []).append(_Hop(first, number))
        self._walks: dict[int, dict[str, tuple[tuple[str, ...], tuple[int, ...]]]] = {}

    def path(self, members: dict[int, int]) -> Path | None:
        """Path of a job with `members[server]` workers on each of its servers; None where a route is missing."""
        ring = sorted(members)
        if len(ring) == 1:
            server = self.servers[ring[0]]
            return Path((), server.fabric_bandwidth, server.fabric_latency_us)
        used: set[int] = set()
        for place, server_index in enumerate(ring):
            # A ring of two is one route; walking it twice adds nothing.
            route = self._route(server_index, ring[(place + 1) % len(ring)])
            if route is None:
                return None
            used.update(route)
        fabrics: list[Server] = [self.servers[s] for s in ring if members[s] > 1]
        rates = [self.links[k].bandwidth for k in used] + [s.fabric_bandwidth for s in fabrics]
        latencies = [self.links[k].latency_us for k in used] + [s.fabric_latency_us for s in fabrics]
        return Path(tuple(self.links[k].name for k in sorted(used)), min(rates), max(latencies))

    def _route(self, one: int, other: int) -> tuple[int, ...] | None:
        start, goal = min(one, other), max(one, other)
        if start not in self._walks:
            self._walks[start] = self._walk(self.servers[start].name)
        found = self._walks[start].get(self.servers[goal].name)
        return None if found is None else found[1]

    def _walk(self, start: str) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
        """Breadth-first: to each name the least sequence of names among the shortest, and its links."""
        best: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {start: ((start,), ())}
        frontier = [start]
        while frontier:
            reached: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
            for here in frontier:
                names, links = best[here]
                for hop in self._hops.get(here, ()):
                    longer = ((*names, hop.to), (*links, hop.link))
                    if hop.to not in best and (hop.to not in reached or longer < reached[hop.to]):
                        reached[hop.to] = longer
            best.update(reached)
            frontier = list(reached)
        return best

"""Facts of a cluster that proofs use: its connected parts, its kinds of GPU, and the best channel (docs/proofs.md)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.power import PowerCap

GpuKind = tuple[str, int]
"""Type and memory of a GPU."""
_SMALL_SERVER = 1024
"""GPUs of a server that always count, however few workers there are."""

Place = TypeVar("Place")


class RateAndLatency(NamedTuple):
    """A channel, of which only the speed matters: bytes per second, and latency in microseconds."""

    rate: int
    latency_us: int


class ClusterFacts:
    """Facts of the cluster of an instance; servers and links are numbered from 0 in its order."""

    def __init__(self, instance: Instance) -> None:
        self.cluster = cluster = instance.cluster
        most = max(_SMALL_SERVER, sum(job.workers for job in instance.jobs))
        self.gpus = [min(server.gpus, most) for server in cluster.servers]
        self.kinds: list[GpuKind] = [(server.gpu_type, server.gpu_memory) for server in cluster.servers]
        self._parts: dict[frozenset[int], Mapping[str, int]] = {}

    @cached_property
    def gpus_of_kind(self) -> Mapping[GpuKind, int]:
        """Number of GPUs by type and memory."""
        return added_up(zip(self.kinds, self.gpus, strict=True))

    def by_kind(self, gpus: Mapping[int, int]) -> Counter[GpuKind]:
        """Return numbers of GPUs by server as numbers of GPUs by type and memory."""
        return added_up((self.kinds[s], count) for s, count in gpus.items())

    @cached_property
    def watts(self) -> Mapping[str, int]:
        """Least watts of the power caps that a server is under, by its name: no block there draws more."""
        least: dict[str, int] = {}
        for cap in self.power_caps.values():
            for server in cap.servers:
                least[server] = min(cap.watts, least.get(server, cap.watts))
        return least

    @cached_property
    def power_caps(self) -> Mapping[str, PowerCap]:
        """Power caps by name."""
        return {cap.name: cap for cap in self.cluster.power_caps or ()}

    @cached_property
    def server_numbers(self) -> Mapping[str, int]:
        """Numbers of servers by name."""
        return {server.name: s for s, server in enumerate(self.cluster.servers)}

    @cached_property
    def link_numbers(self) -> Mapping[str, int]:
        """Numbers of links by name."""
        return {link.name: k for k, link in enumerate(self.cluster.links)}

    def open_links(self, policy: str | None) -> frozenset[int]:
        """Return the links that routes under a policy may use."""
        rule = (self.cluster.route_policies or {}).get(policy or "")
        avoided = set(rule.avoid_links or ()) if rule else set()
        closed = set(rule.avoid or ()) & set(self.cluster.switches) if rule else set()
        links = enumerate(self.cluster.links)
        return frozenset(k for k, link in links if link.name not in avoided and closed.isdisjoint(link.ends))

    def parts(self, links: Collection[int]) -> tuple[int, ...]:
        """Return for each server the least number of a server that some links join it to."""
        part = self.part_of(links)
        return tuple(part[server.name] for server in self.cluster.servers)

    def part_of(self, links: Collection[int]) -> Mapping[str, int]:
        """Return the same by name, also for switches that some of the links join to a server."""
        links = frozenset(links)
        if links not in self._parts:
            self._parts[links] = self._walk(links)
        return self._parts[links]

    def _walk(self, links: frozenset[int]) -> Mapping[str, int]:
        neighbours: dict[str, list[str]] = {}
        for k in links:
            one, other = self.cluster.links[k].ends
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        part: dict[str, int] = {}
        for number, server in enumerate(self.cluster.servers):
            queue = deque([server.name] if server.name not in part else ())
            part.setdefault(server.name, number)
            while queue:
                for name in neighbours.get(queue.popleft(), ()):
                    if name not in part:
                        part[name] = number
                        queue.append(name)
        return part

    def best_channel(self, policy: str | None, gpus: Mapping[int, int], workers: int) -> RateAndLatency | None:
        """Return the largest rate and the least latency on two or more servers; None where no job gets there.

        `gpus`: number of GPUs that may hold a worker, by server.
        """
        if workers < 2:
            return None
        usable, links, servers = self.open_links(policy), self.cluster.links, self.cluster.servers
        rates = {k: -links[k].bandwidth for k in usable}, [-server.fabric_bandwidth for server in servers]
        latencies = {k: links[k].latency_us for k in usable}, [server.fabric_latency_us for server in servers]
        rate, latency = (self._reached(*values, gpus, workers) for values in (rates, latencies))
        return None if rate is None or latency is None else RateAndLatency(-rate, latency)

    def _reached(
        self, of_links: Mapping[int, int], of_fabrics: Sequence[int], gpus: Mapping[int, int], workers: int
    ) -> int | None:
        """Return the least value such that links and fabrics with no more have room for all workers."""
        for value in sorted({*of_links.values(), *of_fabrics}):
            parts = self.parts([k for k, own in of_links.items() if own <= value])
            if _has_room(parts, [own <= value for own in of_fabrics], gpus, workers):
                return value
        return None


def _has_room(parts: Sequence[int], shared: Sequence[bool], gpus: Mapping[int, int], workers: int) -> bool:
    """Return whether some part has two servers and room for all workers, one on a server whose fabric is worse."""
    servers = Counter(parts[server] for server in gpus)
    room = added_up((parts[server], count if shared[server] else min(count, 1)) for server, count in gpus.items())
    return any(room[part] >= workers and count >= 2 for part, count in servers.items())


def added_up(amounts: Iterable[tuple[Place, int]]) -> Counter[Place]:
    """Return the sum of the amounts of each place."""
    sums = Counter[Place]()
    for place, amount in amounts:
        sums[place] += amount
    return sums


def numbers_of_workers(room: Sequence[int], workers: int) -> Iterator[tuple[int, ...]]:
    """Yield how many of some workers are in each place with some room, in ascending order."""
    if workers > sum(room):
        return
    behind, counts, left = [*accumulate(room[::-1], initial=0)][::-1], list[int](), workers
    while True:
        for more in behind[len(counts) + 1 :]:
            counts.append(max(0, left - more))
            left -= counts[-1]
        yield tuple(counts)
        # The last place that can have one more worker gets it, and the places behind it begin anew.
        while counts and (not left or counts[-1] == room[len(counts) - 1]):
            left += counts.pop()
        if not counts:
            return
        counts[-1] += 1
        left -= 1

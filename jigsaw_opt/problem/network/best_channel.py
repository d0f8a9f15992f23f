"""The best rate and latency of a job's transfers, over all its placements on several servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Channel, Cluster, joined_parts


class _Grade(NamedTuple):
    """The part of the cluster that is left when everything worse than `value` is taken away.

    `part` numbers the joined part of each server; in a server that is not `shared` the fabric is worse,
    so a job has at most one worker there.
    """

    value: int
    part: tuple[int, ...]
    shared: tuple[bool, ...]


class BestChannel:
    """Best rate and latency of jobs on two or more servers.

    The rate of a ring is that of its slowest link and fabric (specification: ring). So a rate can be
    reached only where links of at least that rate join servers with room for all workers.

    `cluster`: the cluster whose links are used.
    """

    def __init__(self, cluster: Cluster) -> None:
        links, servers = cluster.links, cluster.servers
        # A rate counts as its negative, so that less is better of both.
        self._rates = _grades(cluster, [-one.bandwidth for one in links], [-one.fabric_bandwidth for one in servers])
        self._latencies = _grades(
            cluster, [one.latency_us for one in links], [one.fabric_latency_us for one in servers]
        )

    def crossing(self, gpus: Mapping[int, int], slots: int) -> Channel | None:
        """Return the rate and latency that no placement on two or more servers beats; None without one.

        `gpus`: number of GPUs that the job may use, by server.
        """
        if slots < 2:
            return None
        rate, latency = _best(self._rates, gpus, slots), _best(self._latencies, gpus, slots)
        return None if rate is None or latency is None else Channel((), -rate, latency)


def _grades(cluster: Cluster, of_links: Sequence[int], of_servers: Sequence[int]) -> list[_Grade]:
    """Return the grades of a value that each link and each server's fabric has, from the least value on."""
    grades = []
    for value in sorted({*of_links, *of_servers}):
        joined = joined_parts(
            cluster, (link for link, own in zip(cluster.links, of_links, strict=True) if own <= value)
        )
        part = tuple(joined[server.name] for server in cluster.servers)
        # Where every part has one server, no job sits on two.
        if len(set(part)) < len(part):
            grades.append(_Grade(value, part, tuple(own <= value for own in of_servers)))
    return grades


def _best(grades: list[_Grade], gpus: Mapping[int, int], slots: int) -> int | None:
    for grade in grades:
        room: Counter[int] = Counter()
        servers = Counter(grade.part[s] for s in gpus)
        for s, count in gpus.items():
            # Several workers on a server use its fabric. Where that is worse than the grade, the server holds one
            # worker.
            room[grade.part[s]] += count if grade.shared[s] else min(1, count)
        if any(room[part] >= slots and count >= 2 for part, count in servers.items()):
            return grade.value
    return None

"""The best rate and latency of a job's transfers, over all its placements on several servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Channel, Cluster, Link, Server, joined_parts


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
        rates = {link.bandwidth for link in links} | {server.fabric_bandwidth for server in servers}
        latencies = {link.latency_us for link in links} | {server.fabric_latency_us for server in servers}
        self._rates = _grades(
            cluster,
            sorted(rates, reverse=True),
            lambda link, value: link.bandwidth >= value,
            lambda server, value: server.fabric_bandwidth >= value,
        )
        self._latencies = _grades(
            cluster,
            sorted(latencies),
            lambda link, value: link.latency_us <= value,
            lambda server, value: server.fabric_latency_us <= value,
        )

    def crossing(self, gpus: Mapping[int, int], slots: int) -> Channel | None:
        """Return the rate and latency that no placement on two or more servers beats; None without one.

        `gpus`: number of GPUs that the job may use, by server.
        """
        if slots < 2:
            return None
        rate, latency = _best(self._rates, gpus, slots), _best(self._latencies, gpus, slots)
        return None if rate is None or latency is None else Channel((), rate, latency)


def _grades(
    cluster: Cluster,
    values: list[int],
    link_has: Callable[[Link, int], bool],
    server_has: Callable[[Server, int], bool],
) -> list[_Grade]:
    grades = []
    for value in values:
        joined = joined_parts(cluster, (link for link in cluster.links if link_has(link, value)))
        part = tuple(joined[server.name] for server in cluster.servers)
        # Where every part has one server, no job sits on two.
        if len(set(part)) < len(part):
            shared = tuple(server_has(server, value) for server in cluster.servers)
            grades.append(_Grade(value, part, shared))
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

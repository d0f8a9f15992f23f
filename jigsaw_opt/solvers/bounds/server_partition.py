"""Partitions of the servers: alone, then as their links join them (racks), and so on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Cluster, Link, joined_parts


class ServerPartition(NamedTuple):
    """Servers put together: the group of each server, and the links that leave each group."""

    group: tuple[int, ...]
    leaving: dict[int, frozenset[int]]

    @property
    def shared(self) -> bool:
        """Return whether some link leaves two groups."""
        # A link that leaves two groups counts twice in the sum and once in the union.
        return sum(map(len, self.leaving.values())) > len(frozenset().union(*self.leaving.values()))


def server_partitions(cluster: Cluster) -> Iterator[ServerPartition]:
    """Yield the partition into single servers, then those into servers that links of the last one join, and so on."""
    inside: list[Link] = []
    while True:
        part = joined_parts(cluster, inside)
        group = tuple(part[server.name] for server in cluster.servers)
        leaving = _leaving(cluster, part, set(group))
        # No link joins the groups any more, so they do not grow. Until then `inside` grows in each round.
        if not any(leaving.values()):
            return
        yield ServerPartition(group, leaving)
        inside += [cluster.links[k] for k in frozenset().union(*leaving.values())]


def _leaving(cluster: Cluster, part: dict[str, int], groups: set[int]) -> dict[int, frozenset[int]]:
    leaving: dict[int, set[int]] = {group: set() for group in groups}
    for k, link in enumerate(checking_deadline(cluster.links)):
        first, second = (part[end] for end in link.ends)
        for group in {first, second} & groups if first != second else ():
            leaving[group].add(k)
    return {group: frozenset(links) for group, links in leaving.items()}

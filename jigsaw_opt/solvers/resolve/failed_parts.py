"""Parts of a cluster that may fail, and what is left without them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from jigsaw_opt.problem.cluster import Cluster

__all__ = ["KINDS", "FailedPart", "PartKind", "dead_links", "left_of", "parts_of"]

PartKind = Literal["link", "switch", "server"]
KINDS: tuple[PartKind, ...] = get_args(PartKind)


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A link, switch or server that failed."""

    kind: PartKind
    name: str


def parts_of(cluster: Cluster, kinds: Collection[PartKind] = KINDS) -> list[FailedPart]:
    """Return all parts of some kinds, in the order of the cluster."""
    names: dict[PartKind, Iterable[str]] = {
        "link": (link.name for link in cluster.links),
        "switch": cluster.switches,
        "server": (server.name for server in cluster.servers),
    }
    return [FailedPart(kind, name) for kind in KINDS if kind in kinds for name in names[kind]]


def dead_links(cluster: Cluster, failed: Iterable[FailedPart]) -> frozenset[str]:
    """Return the names of the links that failed, and of those at a switch or server that did."""
    links = {part.name for part in failed if part.kind == "link"}
    nodes = {part.name for part in failed if part.kind != "link"}
    return frozenset(link.name for link in cluster.links if link.name in links or not nodes.isdisjoint(link.ends))


def left_of(cluster: Cluster, failed: Collection[FailedPart]) -> Cluster:
    """Return the cluster without parts that failed; a switch that failed stays, without links."""
    return cluster.without(dead_links(cluster, failed), {part.name for part in failed if part.kind == "server"})

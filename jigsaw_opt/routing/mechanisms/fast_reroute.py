"""One backup next hop for every target, worked out before any failure (RFC 5714)."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.mechanisms.by_target import TargetTable
from jigsaw_opt.routing.traffic import Packet, RoutedFlow

__all__ = ["FastReroute"]


class _BackupSwitches(TargetTable):
    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return the first link of the table or, where it is dead, that of the shortest path without it."""
        links = self.links(packet.node, packet.flow.target)
        if not links or links[0] not in dead:
            return links[0] if links else None
        backup = self.links(packet.node, packet.flow.target, without=links[0])
        return backup[0] if backup and backup[0] not in dead else None


class FastReroute:
    """Static tables by target with one backup, blind to policies. Two nodes may send a packet to and fro."""

    name = "fast_reroute"

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> _BackupSwitches:
        """Return switches with their tables."""
        return _BackupSwitches(graph)

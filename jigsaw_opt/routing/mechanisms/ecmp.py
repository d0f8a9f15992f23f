"""Equal-cost multipath: the flow's hash chooses among the live next hops of shortest paths (RFC 2992)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.mechanisms.by_target import TargetTable
from jigsaw_opt.routing.traffic import Packet, RoutedFlow

__all__ = ["Ecmp"]


class _EcmpSwitches(TargetTable):
    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return one of the live links that lead nearer, the same for all packets of a flow while none changes."""
        links = [link for link in self.links(packet.node, packet.flow.target) if link not in dead]
        return links[zlib.crc32(f"{packet.label},{packet.node}".encode()) % len(links)] if links else None


class Ecmp:
    """Static tables of all shortest paths; a switch leaves out its own dead links."""

    name = "ecmp"

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> _EcmpSwitches:
        """Return switches with their tables."""
        return _EcmpSwitches(graph)

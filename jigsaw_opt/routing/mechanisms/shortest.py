"""One shortest path to every target, whatever fails."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.mechanisms.by_target import TargetTable
from jigsaw_opt.routing.traffic import Packet, RoutedFlow

__all__ = ["Shortest"]


class _ShortestSwitches(TargetTable):
    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return the first link of the table, if it is live."""
        links = self.links(packet.node, packet.flow.target)
        return links[0] if links and links[0] not in dead else None


class Shortest:
    """A static table by target, blind to policies and failures."""

    name = "shortest"

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> _ShortestSwitches:
        """Return switches with their tables."""
        return _ShortestSwitches(graph)

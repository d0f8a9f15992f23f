"""Next hops by the target alone, which know no policy: shortest paths, equal-cost multipath, one backup."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.traffic import Packet, RoutedFlow


class TargetTable:
    """For every node and target, the links on shortest paths of the graph without failures."""

    follows_policies = False

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph
        self.recomputations = 0
        self._distances: dict[tuple[int, int | None], list[int]] = {}

    def links(self, node: int, target: int, without: int | None = None) -> list[int]:
        """Return the links of `node` that lead nearer to `target`, by the names of the nodes behind them.

        `without`: A link that the paths do not use; None for none.
        """
        distance = self._distances_to(target, without)
        nearer = distance[node] - 1
        return [
            link for other, link in self.graph.neighbours[node] if link != without and distance[other] == nearer >= 0
        ]

    def links_changed(self, dead: frozenset[int], now_us: int) -> None:
        """Leave the tables as they are."""

    def _distances_to(self, target: int, without: int | None) -> list[int]:
        """Return the links from every node to `target`; -1 where there is no path."""
        key = (target, without)
        if key not in self._distances:
            found = [-1] * len(self.graph.nodes)
            found[target], layer = 0, [target]
            while layer:
                behind = []
                for node in layer:
                    for other, link in self.graph.neighbours[node]:
                        if found[other] < 0 and link != without:
                            found[other] = found[node] + 1
                            behind.append(other)
                layer = behind
            self._distances[key] = found
        return self._distances[key]


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

"""Packets hop by hop over links that fail and recover, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import count

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.network.walks import LinkGraph, least_walk
from jigsaw_opt.routing.mechanisms import Mechanism
from jigsaw_opt.routing.traffic import LinkChange, Packet, RoutedFlow, TrafficFlow, routed


@dataclass(frozen=True)
class Fabric:
    """Nodes and links.

    `ends`: names of the nodes at which flows begin and end. `latency_us`: for each link, the microseconds that a packet
    takes over it, at least 1.
    """

    name: str
    ends: tuple[str, ...]
    graph: LinkGraph
    latency_us: tuple[int, ...]

    @classmethod
    def alike(
        cls,
        name: str,
        ends: Iterable[str],
        others: Iterable[str],
        pairs: Iterable[tuple[str, str]],
        latency_us: int = 1,
    ) -> Fabric:
        """Build a fabric of links that all take the same time, each named by its two ends as in ``a--b``."""
        first = tuple(ends)
        links = [(f"{a}--{b}", (a, b)) for a, b in pairs]
        return cls(name, first, LinkGraph((*first, *others), links), (latency_us,) * len(links))


def fabric_of(cluster: Cluster, name: str = "cluster") -> Fabric:
    """Return the servers, switches and links of a cluster as a fabric; a latency of 0 counts as 1 us."""
    servers = tuple(server.name for server in cluster.servers)
    graph = LinkGraph((*servers, *cluster.switches), ((link.name, link.ends) for link in cluster.links))
    return Fabric(name, servers, graph, tuple(max(1, link.latency_us) for link in cluster.links))


HOP_LIMIT = 255
"""A packet that has crossed so many links is dropped, as by the 8 bits of its lifetime in IP."""


@dataclass(frozen=True, slots=True)
class ReroutingOutcome:
    """The outcome of a simulation: what became of the packets.

    `packets`: all packets, in the order of their flows and of their sending. `recomputations`: routes that were worked
    out anew, over all switches or by the controller.
    """

    packets: tuple[Packet, ...]
    recomputations: int

    @property
    def routable(self) -> int:
        """Number of packets for which there was a compliant walk when they were sent."""
        return sum(packet.least_links is not None for packet in self.packets)

    @property
    def compliant(self) -> int:
        """Number of packets that arrived over a compliant walk."""
        return sum(packet.end == "arrived" and packet.compliant for packet in self.packets)

    @property
    def violations(self) -> int:
        """Number of packets that arrived over a walk that breaks their policy."""
        return sum(packet.end == "arrived" and not packet.compliant for packet in self.packets)

    @property
    def lost(self) -> int:
        """Number of packets that were dropped although there was a compliant walk when they were sent."""
        return sum(packet.end == "dropped" and packet.least_links is not None for packet in self.packets)

    @property
    def delivered_share(self) -> Fraction:
        """Share of packets that arrived over a compliant walk, of those that had one; 1 where none had one."""
        kept = sum(p.end == "arrived" and p.compliant and p.least_links is not None for p in self.packets)
        return Fraction(kept, self.routable) if self.routable else Fraction(1)

    @property
    def stretch(self) -> Fraction:
        """Links of all compliant walks over those of the least ones when they began; 1 where there are none."""
        counted = [p for p in self.packets if p.end == "arrived" and p.compliant and p.least_links]
        least = sum(p.least_links or 0 for p in counted)
        return Fraction(sum(p.used for p in counted), least) if least else Fraction(1)

    @property
    def most_met(self) -> int:
        """Failed links in the fullest header."""
        return max((len(packet.met) for packet in self.packets), default=0)


def simulate_rerouting(
    fabric: Fabric, flows: Sequence[TrafficFlow], changes: Iterable[LinkChange], mechanism: Mechanism
) -> ReroutingOutcome:
    """Forward the packets of `flows` while links fail and recover, and return what becomes of them.

    A switch knows at once which of its own links are dead. At the same time changes of links come first, then packets
    in the order in which they were sent on. The same arguments give the same outcome.

    Parameters
    ----------
    fabric
        Nodes and links.
    flows
        What is sent.
    changes
        Failures and recoveries, in any order.
    mechanism
        How switches forward packets.
    """
    run = _Rerouting(fabric, tuple(flows), mechanism)
    run.go(sorted(changes, key=lambda change: change.time_us))
    return ReroutingOutcome(run.packets, run.forwarding.recomputations)


class _Rerouting:
    def __init__(self, fabric: Fabric, flows: tuple[TrafficFlow, ...], mechanism: Mechanism) -> None:
        self.fabric, self.graph = fabric, fabric.graph
        ways = routed(self.graph, flows)
        self.forwarding = mechanism.start(self.graph, ways)
        self.packets = tuple(
            _packet(way, label, flow.start_us + k * flow.gap_us)
            for label, (flow, way) in enumerate(zip(flows, ways))
            for k in range(flow.packets)
        )
        self._order = count()
        self._dead: frozenset[int] = frozenset()
        self._dead_at: dict[int, frozenset[int]] = {}
        self._least: dict[tuple[int, frozenset[int]], int | None] = {}

    def go(self, changes: Sequence[LinkChange]) -> None:
        """Go from event to event until all packets have arrived or are dropped."""
        links = {name: k for k, name in enumerate(self.graph.links)}
        pending = [(packet.sent_us, next(self._order), packet) for packet in self.packets]
        heapify(pending)
        coming = iter([*changes, None])
        change = next(coming)
        while pending:
            now_us, _, packet = pending[0]
            if change is not None and change.time_us <= now_us:
                self._change(links[change.link], change.up, change.time_us)
                change = next(coming)
                continue
            heappop(pending)
            arrival_us = self._forward(packet, now_us)
            if arrival_us is not None:
                heappush(pending, (arrival_us, next(self._order), packet))

    def _change(self, link: int, up: bool, now_us: int) -> None:
        self._dead = self._dead - {link} if up else self._dead | {link}
        for end in self.graph.ends[link]:
            self._dead_at[end] = frozenset(k for _, k in self.graph.neighbours[end] if k in self._dead)
        self.forwarding.links_changed(self._dead, now_us)

    def _forward(self, packet: Packet, now_us: int) -> int | None:
        """Send a packet over its next link, and say when it is behind it; None where its way ends."""
        if not packet.walk:
            packet.walk.append((packet.node, packet.state))
            packet.least_links = self._least_links(packet.flow)
        flow = packet.flow
        if packet.node == flow.target and (packet.state == flow.policy.full or not self.forwarding.follows_policies):
            packet.end = "arrived"
            return None
        dead = self._dead_at.get(packet.node, frozenset())
        link = self.forwarding.next_link(packet, dead, now_us) if packet.used < HOP_LIMIT else None
        if link is None:
            packet.end = "dropped"
            return None
        self._cross(packet, link)
        return now_us + self.fabric.latency_us[link]

    def _cross(self, packet: Packet, link: int) -> None:
        first, second = self.graph.ends[link]
        policy = packet.flow.policy
        packet.node = second if packet.node == first else first
        packet.state = policy.enter(packet.state, packet.node)
        packet.used += 1
        packet.strayed |= link in policy.avoid_links or packet.node in policy.avoid
        packet.walk.append((packet.node, packet.state))

    def _least_links(self, flow: RoutedFlow) -> int | None:
        """Return the links of the least compliant walk by what is dead now."""
        key = (flow.number, self._dead)
        if key not in self._least:
            start = (flow.source, flow.policy.enter(0, flow.source))
            walk = least_walk(self.graph, flow.policy, start, flow.target, self._dead, flow.policy.max_links)
            self._least[key] = None if walk is None else len(walk)
        return self._least[key]


def _packet(flow: RoutedFlow, label: int, sent_us: int) -> Packet:
    return Packet(flow, label, sent_us, flow.source, flow.policy.enter(0, flow.source))

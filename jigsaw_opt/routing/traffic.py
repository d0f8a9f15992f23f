"""Flows, their packets, and links that fail and recover."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from jigsaw_opt.problem.network.route_policy import FREE, RoutePolicy
from jigsaw_opt.problem.network.walks import LinkGraph, PolicyAutomaton


@dataclass(frozen=True, slots=True)
class TrafficFlow:
    """Packets from one node to another.

    `start_us`: time at which the first packet is sent, in microseconds. `packets`: number of packets, at least 1.
    `gap_us`: microseconds from one to the next, at least 1.
    """

    source: str
    target: str
    policy: RoutePolicy = FREE
    start_us: int = 0
    packets: int = 1
    gap_us: int = 1


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link that fails or recovers.

    `time_us`: time of the change, in microseconds. `up`: whether it carries packets from then on. A packet that is on
    the link then still arrives.
    """

    time_us: int
    link: str
    up: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RoutedFlow:
    """A flow by the numbers of a graph; flows with the same ends and policy share one."""

    number: int
    source: int
    target: int
    policy: PolicyAutomaton


@dataclass(slots=True, eq=False)
class Packet:
    """A packet on its way, with what it carries.

    `label`: number of its flow, which hashes read. `sent_us`: time at which it was sent, in microseconds. `node,
    state`: number of the node where it is, and the state of its policy there. `met`: failed links that it was told of:
    what a switch with D2R writes into its header. `recomputations`: number of times that a switch worked out a new walk
    for it. `walk`: pairs of node and state that it has been at. `strayed`: whether it entered a node or used a link
    that its policy avoids. `end`: whether it arrived or was dropped; None on its way. `least_links`: links of the least
    compliant walk when it was sent; None where there was none.
    """

    flow: RoutedFlow
    label: int
    sent_us: int
    node: int
    state: int
    used: int = 0
    met: frozenset[int] = frozenset()
    recomputations: int = 0
    walk: list[tuple[int, int]] = field(default_factory=list)
    strayed: bool = False
    end: Literal["arrived", "dropped"] | None = None
    least_links: int | None = None

    @property
    def left(self) -> int | None:
        """How many links its policy still allows; None for any number."""
        limit = self.flow.policy.max_links
        return None if limit is None else limit - self.used

    @property
    def compliant(self) -> bool:
        """Whether its walk keeps its policy: nothing avoided, all groups passed, not too many links."""
        left = self.left
        return not self.strayed and self.state == self.flow.policy.full and (left is None or left >= 0)


def routed(graph: LinkGraph, flows: tuple[TrafficFlow, ...]) -> tuple[RoutedFlow, ...]:
    """Return each flow by the numbers of a graph; flows with the same ends and policy share one.

    `flows`: the flows, by names of nodes.
    """
    known: dict[tuple[str, str, RoutePolicy], RoutedFlow] = {}
    found = []
    for flow in flows:
        key = (flow.source, flow.target, flow.policy)
        if key not in known:
            ends = (graph.number[flow.source], graph.number[flow.target])
            known[key] = RoutedFlow(len(known), *ends, PolicyAutomaton(flow.policy, graph, ends))
        found.append(known[key])
    return tuple(found)

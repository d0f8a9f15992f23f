"""Forwarding that keeps the policies of flows: by the switches themselves (D2R), or by a controller.

In D2R failures travel in packets, after Subramanian, Abhashkumar, D'Antoni and Akella (arXiv 1912.02402) and the patent
US11075835B2, claim 1. How the released system searches and what its header looks like is not known to us; the search
here is our own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import Hop, LinkGraph, least_walk
from jigsaw_opt.routing.traffic import Packet, RoutedFlow


class RoutePlanner:
    """Compliant walks, as every switch of a fabric works them out from the same graph and the same failures.

    What is left of a least walk behind one of its nodes is the least walk from there. So one walk gives the next hops
    of all its nodes, and packets that are forwarded by next hops follow it.
    """

    def __init__(self, graph: LinkGraph) -> None:
        self.graph = graph
        self._known: dict[tuple[int, int, int, frozenset[int]], tuple[Hop, int] | None] = {}

    def next_hop(
        self, flow: RoutedFlow, position: tuple[int, int], dead: frozenset[int], left: int | None = None
    ) -> tuple[Hop, int] | None:
        """Return the first hop of the least compliant walk from a node and a state, with the links of the whole walk.

        `position`: A node, not the end of a compliant walk, and the state of the policy there. `left`: most links that
        the walk may have; None for any number.
        """
        key = (flow.number, *position, dead)
        if key not in self._known:
            self._plan(flow, position, dead)
        found = self._known[key]
        if found is None or (left is not None and found[1] > left):
            return None
        return found

    def _plan(self, flow: RoutedFlow, position: tuple[int, int], dead: frozenset[int]) -> None:
        walk = least_walk(self.graph, flow.policy, position, flow.target, dead)
        if walk is None:
            self._known[(flow.number, *position, dead)] = None
            return
        for index, hop in enumerate(walk):
            self._known[(flow.number, *position, dead)] = (hop, len(walk) - index)
            position = (hop.node, hop.state)


class _D2RSwitches:
    follows_policies = True

    def __init__(self, graph: LinkGraph) -> None:
        self.recomputations = 0
        self._planner = RoutePlanner(graph)

    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return the first live hop; each dead one is written into the packet, and the walk found anew without it."""
        position = (packet.node, packet.state)
        while (found := self._planner.next_hop(packet.flow, position, packet.met, packet.left)) is not None:
            link = found[0].link
            if link not in dead:
                return link
            packet.met |= {link}
            packet.recomputations += 1
            self.recomputations += 1
        return None

    def links_changed(self, dead: frozenset[int], now_us: int) -> None:
        """Ignore the change: switches hear nothing of links of others."""


class D2R:
    """A switch knows the graph without failures, its own links, and what the packet carries.

    The packet carries the failed links that it has met, the state of its policy and the links that it has used. None of
    its failures is ever taken back, so it is rerouted at most as often as it meets one, and walks in no loop between.
    """

    name = "d2r"

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> _D2RSwitches:
        """Return switches that all have the same graph."""
        return _D2RSwitches(graph)


class _ControlledSwitches:
    follows_policies = True

    def __init__(self, graph: LinkGraph, flows: int, delay_us: int) -> None:
        self.recomputations = 0
        self._planner = RoutePlanner(graph)
        self._flows, self._delay_us = flows, delay_us
        self._known: frozenset[int] = frozenset()
        self._pending: deque[tuple[int, frozenset[int]]] = deque()

    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return the next hop by the failures that the controller has made routes for."""
        while self._pending and self._pending[0][0] <= now_us:
            self._known = self._pending.popleft()[1]
            self.recomputations += self._flows
        found = self._planner.next_hop(packet.flow, (packet.node, packet.state), self._known, packet.left)
        return found[0].link if found is not None and found[0].link not in dead else None

    def links_changed(self, dead: frozenset[int], now_us: int) -> None:
        """Put new routes for all flows in force after the delay: once for what changes at one time."""
        if self._pending and self._pending[-1][0] == now_us + self._delay_us:
            self._pending.pop()
        self._pending.append((now_us + self._delay_us, dead))


class Controller:
    """Compliant routes of all flows, from one place that hears of every failure.

    `delay_us`: from a failure until its new routes are in force at all switches at once.
    """

    name = "controller"

    def __init__(self, delay_us: int = 50_000) -> None:
        self.delay_us = delay_us

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> _ControlledSwitches:
        """Return switches with the routes for no failure."""
        return _ControlledSwitches(graph, len(set(flows)), self.delay_us)

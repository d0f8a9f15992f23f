"""A controller that works out all routes anew, some time after each failure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.mechanisms.d2r import RoutePlanner
from jigsaw_opt.routing.traffic import Packet, RoutedFlow

__all__ = ["Controller"]


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

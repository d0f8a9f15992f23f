"""Ways to forward packets: by the target alone, or by the policy of the flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jigsaw_opt.problem.network.walks import LinkGraph
from jigsaw_opt.routing.mechanisms.by_policy import D2R, Controller
from jigsaw_opt.routing.mechanisms.by_target import Ecmp, FastReroute, Shortest
from jigsaw_opt.routing.traffic import Packet, RoutedFlow

__all__ = ["D2R", "MECHANISMS", "Controller", "Ecmp", "FastReroute", "Forwarding", "Mechanism", "Shortest"]


class Forwarding(Protocol):
    """The switches of one fabric during one simulation."""

    follows_policies: bool
    """Whether a packet goes on at its target until its policy is kept."""
    recomputations: int
    """Routes worked out anew because of failures, so far."""

    def next_link(self, packet: Packet, dead: frozenset[int], now_us: int) -> int | None:
        """Return the link over which the switch at `packet.node` sends a packet; None where it drops it.

        Parameters
        ----------
        packet
            The packet; what it carries may be changed.
        dead
            Failed links of this switch, and of no other one.
        now_us
            The time.
        """
        ...

    def links_changed(self, dead: frozenset[int], now_us: int) -> None:
        """Take note of all failed links from now on: what a controller is told.

        Parameters
        ----------
        dead
            Failed links, by number.
        now_us
            The time, in microseconds.
        """
        ...


class Mechanism(Protocol):
    """A way to forward packets."""

    name: str

    def start(self, graph: LinkGraph, flows: Sequence[RoutedFlow]) -> Forwarding:
        """Return its switches, before any failure.

        Parameters
        ----------
        graph
            All nodes and links of the fabric.
        flows
            The flows whose packets are forwarded.
        """
        ...


MECHANISMS: tuple[Mechanism, ...] = (D2R(), Shortest(), Ecmp(), FastReroute(), Controller())
"""All of them, with their usual parameters."""

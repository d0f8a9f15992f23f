"""Ways to forward packets, one in each file."""

from jigsaw_opt.routing.mechanisms.by_target import Ecmp, FastReroute, Shortest
from jigsaw_opt.routing.mechanisms.controller import Controller
from jigsaw_opt.routing.mechanisms.d2r import D2R
from jigsaw_opt.routing.mechanisms.mechanism import Forwarding, Mechanism

__all__ = ["D2R", "MECHANISMS", "Controller", "Ecmp", "FastReroute", "Forwarding", "Mechanism", "Shortest"]

MECHANISMS: tuple[Mechanism, ...] = (D2R(), Shortest(), Ecmp(), FastReroute(), Controller())
"""All of them, with their usual parameters."""

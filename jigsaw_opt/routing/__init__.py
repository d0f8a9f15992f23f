"""Packets on a fabric whose links fail: ways to forward them, and a simulation (docs/links.md)."""

from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.routing.mechanisms import MECHANISMS
from jigsaw_opt.routing.simulation import Fabric, ReroutingOutcome, simulate_rerouting
from jigsaw_opt.routing.traffic import LinkChange, TrafficFlow

__all__ = ["MECHANISMS", "Fabric", "LinkChange", "ReroutingOutcome", "RoutePolicy", "TrafficFlow", "simulate_rerouting"]

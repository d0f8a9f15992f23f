"""Next hops of least compliant walks, worked out when asked for and kept."""

from __future__ import annotations

from jigsaw_opt.problem.network.walks import Hop, LinkGraph, least_walk
from jigsaw_opt.routing.traffic import RoutedFlow

__all__ = ["RoutePlanner"]


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

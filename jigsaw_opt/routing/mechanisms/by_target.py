"""Next hops on shortest paths by the target alone, which know no policy."""

from __future__ import annotations

from jigsaw_opt.problem.network.walks import LinkGraph

__all__ = ["TargetTable"]


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

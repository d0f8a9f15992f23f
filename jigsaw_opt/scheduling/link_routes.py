"""What jobs that span servers use of the links, also while some of these are down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jigsaw_opt.problem.cluster import Channel, Cluster, Routes
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.scheduling.memo import memoised

_NONE: frozenset[int] = frozenset()


class LinkRoutes:
    """The ring of a job over its servers, by the least routes of the links that are up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._whole = _LinksUp(cluster, _NONE)
        self._left = self._whole

    def whole(self, gpus: tuple[int, ...]) -> Channel | None:
        """Return the channel of a job while all links are up; None on one server, or where no route joins them."""
        return self._whole.channel(gpus)

    def channel(self, gpus: tuple[int, ...], dead: frozenset[int] = _NONE) -> Channel | None:
        """Return the channel of a job while some links are down; None where it uses no link, or no route is left."""
        whole = self.whole(gpus)
        if whole is None or dead.isdisjoint(whole.links):  # a least route stays the least while others fail
            return whole
        if self._left.dead != dead:
            self._left = _LinksUp(self._cluster, dead)
        return self._left.channel(gpus)

    def factors(self, placements: Sequence[tuple[int, ...]], dead: frozenset[int] = _NONE) -> Sequence[float]:
        """Return by what factor exchanges of each job alone are slower than while all links are up, at least 1."""
        return [self._detour(gpus, dead) if dead else 1.0 for gpus in placements]

    def _detour(self, gpus: tuple[int, ...], dead: frozenset[int]) -> float:
        whole, left = self.whole(gpus), self.channel(gpus, dead)
        return 1.0 if whole is None or left is None else max(1.0, whole.rate / left.rate)


class _LinksUp:
    """The channels over the links that are not dead, each worked out once."""

    def __init__(self, cluster: Cluster, dead: frozenset[int]) -> None:
        self.dead, self._server_of = dead, cluster.gpus.server_of
        self._up = [k for k in range(len(cluster.links)) if k not in dead]
        links = tuple(cluster.links[k] for k in self._up)
        self._routes = Routes(altered(cluster, links=links) if dead else cluster)

    @memoised
    def channel(self, gpus: tuple[int, ...]) -> Channel | None:
        """Return what a job uses, with its links by their numbers in the whole cluster; None on one server."""
        workers = Counter(self._server_of[gpu] for gpu in gpus)
        found = self._routes.channel(workers) if len(workers) > 1 else None
        return found and replace(found, links=tuple(self._up[k] for k in found.links))

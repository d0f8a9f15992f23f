"""How jobs that span servers stretch each other's exchanges, by a model of contention on the links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from jigsaw_opt.errors import UsageError, out_of_range, unsupported
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.network.contention import Degraded, FairSharing
from jigsaw_opt.problem.network.contention import LinkSharing as Division
from jigsaw_opt.scheduling.link_routes import LinkRoutes
from jigsaw_opt.scheduling.performance import Contention
from jigsaw_opt.text import nearest

CONTENTIONS = ("exclusive", "fair", "degraded")
"""Kinds by name; ``exclusive`` is planned transfers, which leave each other alone."""

_LOSS = re.compile(r"[0-9]{1,6}(\.[0-9]{0,9}|/[1-9][0-9]{0,5})?|\.[0-9]{1,9}")


class LinkContention:
    """Every job that spans servers is taken to send all the time, which is the worst that can be.

    `cluster`: its links; a job uses the ring over its servers. `division`: how a link is divided among those that use
    it.
    """

    def __init__(self, cluster: Cluster, division: Division) -> None:
        self._cluster, self._division = cluster, division

    def __repr__(self) -> str:
        return repr(self._division)

    @cached_property
    def _routes(self) -> LinkRoutes:
        """What jobs use of the links, worked out once somebody asks."""
        return LinkRoutes(self._cluster)

    def factors(self, placements: Sequence[tuple[int, ...]], dead: frozenset[int] = frozenset()) -> Sequence[float]:
        """Return the rate of each placement alone with all links, divided by its rate among the others.

        By placement a factor of at least 1; 1 where it uses no links.

        `placements`: for each share the numbers of its GPUs.
        """
        factors = [1.0] * len(placements)
        found = ((k, self._routes.whole(gpus), self._routes.channel(gpus, dead)) for k, gpus in enumerate(placements))
        spanning = [(k, whole, left) for k, whole, left in found if whole is not None and left is not None]
        bandwidths = [link.bandwidth for link in self._cluster.links]
        rates = self._division.rates([left for _, _, left in spanning], bandwidths)
        for (k, whole, _), rate in zip(spanning, rates, strict=True):
            factors[k] = max(1.0, float(whole.rate / rate))
        return factors


def contention_of(given: str | Contention | Division, cluster: Cluster) -> Contention | None:
    """Return the contention named as in ``fair`` or ``degraded:0.2``, or by link use; None for ``exclusive``."""
    if not isinstance(given, str):
        return given if isinstance(given, Contention) else LinkContention(cluster, given)
    kind, _, loss = given.partition(":")
    if kind not in CONTENTIONS:
        message = f"no contention {kind!r}; {nearest(kind, CONTENTIONS)}"
        raise UsageError(message, code="unknown-value", path="contention")
    if loss and kind != "degraded":
        raise unsupported("contention", f"contention {kind!r} has no loss, as degraded:0.2 has; what is {loss!r}?")
    if kind == "exclusive":
        return None
    if kind == "fair":
        return LinkContention(cluster, FairSharing())
    if _LOSS.fullmatch(loss) is None:
        message = f"the loss of degraded contention is a number of at least 0, as in degraded:0.2, not {loss!r}"
        raise out_of_range("contention", message)
    return LinkContention(cluster, Degraded(Fraction(loss)))

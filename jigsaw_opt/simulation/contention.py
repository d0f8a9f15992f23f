"""How jobs that span servers stretch each other's exchanges, by a model of contention on the links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Channel, Cluster, Routes
from jigsaw_opt.problem.contention import Degraded, FairSharing
from jigsaw_opt.problem.contention import LinkSharing as Division

__all__ = ["CONTENTIONS", "LinkContention", "contention_of"]

CONTENTIONS = ("exclusive", "fair", "degraded")
"""Kinds by name; ``exclusive`` is planned transfers, which leave each other alone."""

_LOSS = re.compile(r"[0-9]{1,6}(\.[0-9]{0,9}|/[1-9][0-9]{0,5})?|\.[0-9]{1,9}")


class LinkContention:
    """Every job that spans servers is taken to send all the time, which is the worst that can be.

    Parameters
    ----------
    cluster
        Its links; a job uses the ring over its servers.
    division
        How a link is divided among those that use it.
    """

    def __init__(self, cluster: Cluster, division: Division) -> None:
        self._division = division
        self._routes = Routes(cluster)
        self._bandwidths = [link.bandwidth for link in cluster.links]
        self._server_of = [k for k, server in enumerate(cluster.servers) for _ in range(server.gpus)]
        self._channels: dict[tuple[int, ...], Channel | None] = {}

    def factors(self, placements: Sequence[tuple[int, ...]]) -> Sequence[float]:
        """Rate of each placement alone over its rate among the others."""
        factors = [1.0] * len(placements)
        spanning = {k: channel for k, gpus in enumerate(placements) if (channel := self._channel(gpus)) is not None}
        rates = self._division.rates(list(spanning.values()), self._bandwidths)
        for (k, channel), rate in zip(spanning.items(), rates, strict=True):
            factors[k] = max(1.0, float(channel.rate / rate))
        return factors

    def _channel(self, gpus: tuple[int, ...]) -> Channel | None:
        """What the job uses; None on one server."""
        if gpus not in self._channels:
            workers = Counter(self._server_of[gpu] for gpu in gpus)
            self._channels[gpus] = self._routes.channel(workers) if len(workers) > 1 else None
        return self._channels[gpus]


def contention_of(text: str, cluster: Cluster) -> LinkContention | None:
    """The contention named as in ``fair`` or ``degraded:0.2``; None for ``exclusive``.

    Raises
    ------
    UsageError
        There is no such kind, or the loss is not a number of at least 0.
    """
    kind, _, loss = text.partition(":")
    if kind not in CONTENTIONS or (loss and kind != "degraded"):
        raise UsageError(f"no contention {text!r}; there are {', '.join(CONTENTIONS)}, the last as in degraded:0.2")
    if kind == "exclusive":
        return None
    if kind == "fair":
        return LinkContention(cluster, FairSharing())
    if _LOSS.fullmatch(loss) is None:
        raise UsageError(f"the loss of degraded contention is a number of at least 0, as in degraded:0.2, not {loss!r}")
    return LinkContention(cluster, Degraded(Fraction(loss)))

"""Route policies: conditions on routes (specification: route-policies)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jigsaw_opt.problem.rules.keyed import altered, trusted
from jigsaw_opt.problem.rules.part import CheckedPart


@dataclass(frozen=True, slots=True)
class RoutePolicy(CheckedPart, definition="route_policy"):
    """Conditions that a route must keep (specification: route-policies). A part that is None asks for nothing.

    Parameters
    ----------
    avoid
        Names of servers and switches that it does not enter; its two ends are exempt.
    avoid_links
        Names of links that it does not use.
    via
        Groups of names: it passes at least one of each group. The ends count.
    max_links
        It has at most so many links, one used twice counted twice; None for any number.
    """

    avoid: tuple[str, ...] | None = None
    avoid_links: tuple[str, ...] | None = None
    via: tuple[tuple[str, ...], ...] | None = None
    max_links: int | None = None

    def without_links(self, gone: Collection[str]) -> RoutePolicy:
        """Return the policy on a cluster that some links are gone from: it need not avoid them by name."""
        if self.avoid_links is None:
            return self
        return altered(self, avoid_links=tuple(link for link in self.avoid_links if link not in gone))


FREE = trusted(RoutePolicy)
"""The policy that every walk keeps."""

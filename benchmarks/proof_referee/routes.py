"""Routes and rings of servers, and the rate and latency of a channel along them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise

from .common import Document

Route = Callable[[str, str], "frozenset[str] | None"]
"""Names of the links between two servers, or None without a route."""


def routes(cluster: Document, job: Document) -> Route:
    """Return the routes of a job (specification: route, route-policies)."""
    policy = cluster.get("route_policies", {}).get(job.get("route_policy"), {})
    groups = [set(group) for group in policy.get("via", [])]
    everything = frozenset(range(len(groups)))
    avoided, most = set(policy.get("avoid", [])), policy.get("max_links")
    place = {server["name"]: k for k, server in enumerate(cluster["servers"])}
    neighbours: dict[str, dict[str, str]] = {name: {} for name in [*place, *cluster["switches"]]}
    for link in cluster["links"]:
        if link["name"] not in policy.get("avoid_links", []):
            one, other = link["ends"]
            neighbours[one][other] = neighbours[other][one] = link["name"]

    def passed(node: str, before: frozenset[int] = frozenset()) -> frozenset[int]:
        return before | {k for k, group in enumerate(groups) if node in group}

    @cache
    def between(one: str, other: str) -> frozenset[str] | None:
        if place[one] > place[other]:
            return between(other, one)
        walks = {(one, passed(one)): (one,)}  # by node and groups passed, the smallest of the shortest walks
        seen = set(walks)
        while walks:
            if (other, everything) in walks:
                return frozenset(neighbours[a][b] for a, b in pairwise(walks[other, everything]))
            if most is not None and len(next(iter(walks.values()))) > most:
                break
            longer: dict[tuple[str, frozenset[int]], tuple[str, ...]] = {}
            for (node, before), walk in walks.items():
                for end in neighbours[node]:
                    state = (end, passed(end, before))
                    if state not in seen and (end not in avoided or end in (one, other)):
                        longer[state] = min(longer.get(state, (*walk, end)), (*walk, end))
            walks = longer
            seen |= set(walks)
        return None

    return between


def joined(names: list[str], route: Route) -> bool:
    """Return whether a route joins any two of these servers."""
    return all(route(one, other) is not None for one, other in combinations(names, 2))


def channel(cluster: Document, counts: dict[str, int], route: Route) -> tuple[frozenset[str], int, int]:
    """Return links, rate and latency of the ring of servers with so many workers each (specification: ring)."""
    ring = [server for server in cluster["servers"] if counts.get(server["name"])]
    if len(ring) == 1:
        return frozenset(), ring[0]["fabric_bandwidth"], ring[0]["fabric_latency_us"]
    names = [server["name"] for server in ring]
    used = frozenset().union(*(route(one, other) or () for one, other in pairwise([*names, names[0]])))
    links = [link for link in cluster["links"] if link["name"] in used]
    fabrics = [server for server in ring if counts[server["name"]] > 1]
    return (
        used,
        min([link["bandwidth"] for link in links] + [server["fabric_bandwidth"] for server in fabrics]),
        max([link["latency_us"] for link in links] + [server["fabric_latency_us"] for server in fabrics]),
    )

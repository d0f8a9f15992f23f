"""Servers, rings and routes for the referee, from the specification alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

Json = Mapping[str, Any]


def homes_of(instance: Json, job: Json) -> list[Json]:
    """The server of each GPU of a job."""
    servers = {server["name"]: server for server in instance["cluster"]["servers"]}
    return [servers[gpu.rpartition("/")[0]] for gpu in job["gpus"]]


def wrong_gpus(job: Json, homes: Sequence[Json]) -> Iterator[str]:
    """GPUs that are there, each once (specification: placement)."""
    numbers = [gpu.rpartition("/")[2] for gpu in job["gpus"]]
    if any(not n.isascii() or str(int(n)) != n or int(n) >= home["gpus"] for n, home in zip(numbers, homes)):
        yield "placement: no such GPU"
    if len(set(job["gpus"])) != len(job["gpus"]):
        yield "placement: a GPU twice"


def policy_of(instance: Json, given: Json) -> Json:
    """What the routes of a job must keep (specification: route-policies)."""
    policies: Json = instance["cluster"].get("route_policies", {})
    kept: Json = policies[given["route_policy"]] if "route_policy" in given else {}
    return kept


def channel_of(instance: Json, given: Json, homes: Sequence[Json]) -> tuple[int | None, int, frozenset[str]]:
    """Rate, latency and links of a ring (specification: ring, route); no rate where two servers have no route."""
    counts = Counter(home["name"] for home in homes)
    ring = [server for server in instance["cluster"]["servers"] if server["name"] in counts]
    if len(ring) == 1:
        return ring[0]["fabric_bandwidth"], ring[0].get("fabric_latency_us", 0), frozenset()
    order = [server["name"] for server in instance["cluster"]["servers"]]
    used: dict[str, Json] = {}
    names = [server["name"] for server in ring]
    around = {tuple(sorted(pair, key=order.index)) for pair in pairwise([*names, names[0]])}
    for one, other in combinations(names, 2):
        route = route_between(instance["cluster"].get("links", []), policy_of(instance, given), one, other)
        if route is None:
            return None, 0, frozenset()
        if (one, other) in around:
            used.update({link["name"]: link for link in route})
    fabrics = [server for server in ring if counts[server["name"]] > 1]
    rates = [link["bandwidth"] for link in used.values()] + [server["fabric_bandwidth"] for server in fabrics]
    delays = [x.get("latency_us", 0) for x in used.values()] + [x.get("fabric_latency_us", 0) for x in fabrics]
    return min(rates), max(delays), frozenset(used)


def route_between(links: Sequence[Json], policy: Json, start: str, end: str) -> list[Json] | None:
    """Fewest links, then the smallest sequence of names: walks grow a link at a time, kept in order of names.

    Of those that end alike and have passed the same groups, the smallest alone goes on (specification: route-policies).
    """
    barred = set(policy.get("avoid", [])) - {start, end}
    usable = [link for link in links if link["name"] not in policy.get("avoid_links", [])]
    groups = policy.get("via", [])

    def place(names: Sequence[str]) -> tuple[str, int]:
        return names[-1], sum(1 << k for k, group in enumerate(groups) if set(group) & set(names))

    walks, seen = {place([start]): ([start], list[Json]())}, {place([start])}
    for _ in range(policy.get("max_links", len(links) * 2 ** (len(groups) + 1)) + 1):
        if (end, 2 ** len(groups) - 1) in walks:
            return walks[end, 2 ** len(groups) - 1][1]
        grown: dict[tuple[str, int], tuple[list[str], list[Json]]] = {}
        for names, route in sorted(walks.values(), key=lambda walk: walk[0]):
            for link in usable:
                for each, there in (link["ends"], link["ends"][::-1]):
                    at = place([*names, there])
                    if each == names[-1] and there not in barred and at not in seen:
                        longer = ([*names, there], [*route, link])
                        grown[at] = min(grown.get(at, longer), longer, key=lambda walk: walk[0])
        if not grown:
            return None
        seen |= set(grown)
        walks = grown
    return None

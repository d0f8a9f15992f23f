"""Servers, rings and routes for the referee, from the specification alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = ["Json", "channel_of", "homes_of", "route_between", "wrong_gpus"]

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


def channel_of(instance: Json, homes: Sequence[Json]) -> tuple[int | None, int, frozenset[str]]:
    """Rate, latency and links of a ring (specification: ring, route); no rate where two servers have no path."""
    counts = Counter(home["name"] for home in homes)
    ring = [server for server in instance["cluster"]["servers"] if server["name"] in counts]
    if len(ring) == 1:
        return ring[0]["fabric_bandwidth"], ring[0].get("fabric_latency_us", 0), frozenset()
    order = [server["name"] for server in instance["cluster"]["servers"]]
    used: dict[str, Json] = {}
    names = [server["name"] for server in ring]
    for one, other in pairwise([*names, names[0]]):
        route = route_between(instance["cluster"].get("links", []), *sorted((one, other), key=order.index))
        if route is None:
            return None, 0, frozenset()
        used.update({link["name"]: link for link in route})
    fabrics = [server for server in ring if counts[server["name"]] > 1]
    rates = [link["bandwidth"] for link in used.values()] + [server["fabric_bandwidth"] for server in fabrics]
    delays = [x.get("latency_us", 0) for x in used.values()] + [x.get("fabric_latency_us", 0) for x in fabrics]
    return min(rates), max(delays), frozenset(used)


def route_between(links: Sequence[Json], start: str, end: str) -> list[Json] | None:
    """Fewest links, then the smallest sequence of names: paths grow a link at a time, kept in order of names."""
    paths, seen = [([start], list[Json]())], {start}
    while paths:
        for names, route in sorted(paths, key=lambda path: path[0]):
            if names[-1] == end:
                return route
        grown: dict[str, tuple[list[str], list[Json]]] = {}
        for names, route in sorted(paths, key=lambda path: path[0]):
            for link in links:
                for here, there in (link["ends"], link["ends"][::-1]):
                    if here == names[-1] and there not in seen:
                        longer = ([*names, there], [*route, link])
                        grown[there] = min(grown.get(there, longer), longer, key=lambda path: path[0])
        seen |= set(grown)
        paths = list(grown.values())
    return None

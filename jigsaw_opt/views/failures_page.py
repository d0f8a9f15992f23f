"""Effects of failures as one interactive HTML page that needs no network: the cluster, and what each part does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import cos, pi, sin

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.failure_repair import FailureRepair
from jigsaw_opt.solvers.resolve.failures import FailureEffect
from jigsaw_opt.text import printable
from jigsaw_opt.views.describe_failures import FailureDescription, severity, worst_first
from jigsaw_opt.views.page import filled

__all__ = ["failures_html", "positions"]

SEVERITIES = ("no job is touched", "jobs are rerouted", "jobs stop", "guarantees break")


def failures_html(
    instance: Instance, objective: int, found: Iterable[tuple[FailureEffect, FailureRepair | None]]
) -> str:
    """Return the page: servers, switches and links in the colour of what their failure does at worst, and a table.

    Names from the instance are data to the page and never markup.
    """
    places, words = positions(instance.cluster), FailureDescription(instance, objective)
    ranked = worst_first(found)
    servers = {server.name for server in instance.cluster.servers}
    return filled(
        "failures.html",
        f"failures of {instance.name}",
        {
            "name": printable(instance.name),
            "objectiveName": instance.objective.replace("_", " "),
            "worst": words.worst([effect for effect, _ in ranked]),
            "plan": words.plan(),
            "severities": SEVERITIES,
            "nodes": [
                {"name": printable(name), "kind": "server" if name in servers else "switch", "x": x, "y": y}
                for name, (x, y) in places.items()
            ],
            "links": [
                {"name": printable(link.name), "ends": [*places[link.ends[0]], *places[link.ends[1]]]}
                for link in instance.cluster.links
            ],
            "effects": [_told(words, effect, repair) for effect, repair in ranked],
        },
    )


def positions(cluster: Cluster) -> dict[str, tuple[float, float]]:
    """Return for each name of a server or switch its place in the unit square, the top at 0.

    Servers are at the bottom and each switch so many rows above as links lead to the nearest server, in each row in the
    order of their neighbours below. Without switches, servers are on a circle.
    """
    names = [server.name for server in cluster.servers]
    if not cluster.switches:
        turn = 2 * pi / len(names)
        return {name: (0.5 - sin(k * turn) / 2, 0.5 - cos(k * turn) / 2) for k, name in enumerate(names)}
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for first, second in (link.ends for link in cluster.links):
        neighbours[first].append(second)
        neighbours[second].append(first)
    rows = list(_rows(names, cluster.switches, neighbours))
    across: dict[str, float] = {}
    for row in rows:
        below = {name: [across[neighbour] for neighbour in neighbours[name] if neighbour in across] for name in row}
        order = sorted(row, key=lambda name: sum(below[name]) / max(1, len(below[name])))
        across |= {name: (k + 0.5) / len(row) for k, name in enumerate(order)}
    tall = max(1, len(rows) - 1)
    return {name: (across[name], 1 - height / tall) for height, row in enumerate(rows) for name in row}


def _rows(
    servers: Sequence[str], switches: Sequence[str], neighbours: Mapping[str, Sequence[str]]
) -> Iterator[list[str]]:
    """Yield servers, then switches by the number of links to the nearest server; unreached ones come last."""
    row, left = list(servers), dict.fromkeys(switches)
    while row:
        yield row
        row = [
            name
            for name in dict.fromkeys(neighbour for below in row for neighbour in neighbours[below])
            if name in left
        ]
        for name in row:
            del left[name]
    if left:
        yield list(left)


def _told(words: FailureDescription, effect: FailureEffect, repair: FailureRepair | None) -> dict[str, object]:
    slowest = effect.slowest
    told: dict[str, object] = {
        "parts": [f"{part.kind} {printable(part.name)}" for part in effect.failed],
        "failed": words.failed(effect),
        "severity": severity(effect),
        "happens": words.happens(effect),
        "objective": words.outcome(effect),
        "slowest": printable(f"{slowest[0]} {slowest[1].transfer}: {slowest[1].old_us:,} to {slowest[1].new_us:,} µs")
        if slowest is not None
        else "",
        "stopped": list(map(printable, effect.stopped)),
        "broken": list(map(printable, effect.broken)),
        "rerouted": list(map(printable, effect.rerouted)),
    }
    if repair is not None:
        told["repaired"] = words.repair(repair)
    return told

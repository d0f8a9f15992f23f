"""Rules for a cluster that the schema cannot state (specification: cluster)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jigsaw_opt.problem.rules.report import (
    Names,
    Place,
    Report,
    all_names,
    check_unique,
    dict_at,
    list_at,
    names_of,
    quoted,
)


def check_policies(cluster: Json, points: Collection[str] | None, place: Place, report: Report) -> None:
    """Report names in policies that refer to nothing.

    `points`: names of servers and switches; None where not all of them can be read.
    """
    stated = list_at(cluster, "links")
    links = [link.get("name") for link in stated if isinstance(link, dict)]
    readable = len(links) == len(stated) and all(isinstance(name, str) for name in links)
    policies = dict_at(cluster, "route_policies")
    for name in policies:
        policy, where = dict_at(policies, name), ((place, "route_policies"), name)
        if points is not None:
            _check_names(policy, "avoid", where, points, "server or switch", report)
            for index, group in enumerate(list_at(policy, "via")):
                _check_names({"via": group}, "via", where, points, "server or switch", report, index)
        if readable:
            _check_names(policy, "avoid_links", where, [str(link) for link in links], "link", report)


def _check_names(
    policy: Json, key: str, place: Place, known: Collection[str], what: str, report: Report, group: int | None = None
) -> None:
    where = (place, key) if group is None else ((place, key), group)
    for index, name in enumerate(list_at(policy, key)):
        if isinstance(name, str) and name and name not in known:
            report.add_misspelt((where, index), f"no {what} is called {quoted(name)}", name, known)


Json = dict[str, Any]


def check_cluster(cluster: Json, place: Place, report: Report) -> None:
    """Report what is wrong with a cluster besides its structure, which may be broken."""
    servers, switches, links = (list_at(cluster, key) for key in ("servers", "switches", "links"))
    points: list[tuple[Place, str]] = [
        *names_of(servers, (place, "servers")),
        *((((place, "switches"), index), name) for index, name in enumerate(switches) if isinstance(name, str)),
    ]
    check_unique(points, report)
    check_unique(names_of(links, (place, "links")), report)
    # Where a server or switch has no readable name, an end may well mean it.
    all_named = bool(servers) and isinstance(cluster.get("switches", []), list | tuple)
    all_named = all_named and len(points) == len(servers) + len(switches)
    known = {name for _, name in points} if all_named else None
    check_policies(cluster, known, place, report)
    _check_caps(cluster, all_names(servers), (place, "power_caps"), report)
    joined: dict[frozenset[str], int] = {}
    for index, link in enumerate(links):
        ends = list_at(link, "ends") if isinstance(link, dict) else []
        where: Place = (((place, "links"), index), "ends")
        if known is not None:
            _check_known(ends, where, known, report)
        if len(ends) == 2 and all(isinstance(end, str) for end in ends):
            first = joined.setdefault(frozenset(ends), index)
            if ends[0] == ends[1]:
                report.add(where, f"both ends are {quoted(ends[0])}", code="duplicate-name")
            elif first != index:
                report.add(where, f"joins the same two ends as $.cluster.links[{first}]", code="duplicate-name")


def _check_known(ends: list[Any], place: Place, points: set[str], report: Report) -> None:
    for index, end in enumerate(ends):
        if isinstance(end, str) and end and end not in points:
            report.add_misspelt((place, index), f"no server or switch is called {quoted(end)}", end, points)


def _check_caps(cluster: Json, known: Names | None, place: Place, report: Report) -> None:
    """Report caps that share a name, and servers in a cap that do not exist or stand there twice."""
    caps = list_at(cluster, "power_caps")
    check_unique(names_of(caps, place), report)
    for number, cap in enumerate(caps):
        seen: set[str] = set()
        for index, name in enumerate(list_at(cap, "servers")):
            where = (((place, number), "servers"), index)
            if not isinstance(name, str) or not name:
                continue
            if known is not None and name not in known:
                report.add_misspelt(where, f"no server is called {quoted(name)}", name, known)
            elif name in seen:
                report.add(where, f"server {quoted(name)} stands here twice", code="duplicate-name")
            seen.add(name)

"""Rules for route policies that the schema cannot state (specification: route-policies)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jigsaw_opt.problem.rules.report import Place, Report, quoted
from jigsaw_opt.problem.rules.unchecked import dict_at, list_at

__all__ = ["check_policies"]

Json = dict[str, Any]


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

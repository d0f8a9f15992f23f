"""What the schema cannot say of route policies and of the jobs that name them (specification: route-policies)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jigsaw_opt.problem.rules.report import Place, Report, quoted
from jigsaw_opt.problem.rules.unchecked import dict_at, list_at

__all__ = ["check_policies"]

Json = dict[str, Any]


def check_policies(tree: Json, points: Collection[str] | None, report: Report) -> None:
    """Names in policies, and those by which jobs name policies, refer to something.

    Parameters
    ----------
    tree
        An instance document, whose structure may be broken.
    points
        Names of servers and switches; None where not all of them can be read.
    """
    cluster = dict_at(tree, "cluster")
    stated = list_at(cluster, "links")
    links = [link.get("name") for link in stated if isinstance(link, dict)]
    readable = len(links) == len(stated) and all(isinstance(name, str) for name in links)
    policies = dict_at(cluster, "route_policies")
    for name, policy in policies.items():
        place: Place = ((("$", "cluster"), "route_policies"), name)
        if isinstance(policy, dict):
            if points is not None:
                _check_names(policy, "avoid", place, points, "server or switch", report)
                for index, group in enumerate(list_at(policy, "via")):
                    _check_names({"via": group}, "via", place, points, "server or switch", report, index)
            if readable:
                _check_names(policy, "avoid_links", place, [str(link) for link in links], "link", report)
    if isinstance(cluster.get("route_policies", {}), dict):
        _check_jobs(list_at(tree, "jobs"), policies, report)


def _check_names(
    policy: Json, key: str, place: Place, known: Collection[str], what: str, report: Report, group: int | None = None
) -> None:
    where = (place, key) if group is None else ((place, key), group)
    for index, name in enumerate(list_at(policy, key)):
        if isinstance(name, str) and name and name not in known:
            report.add_misspelt((where, index), f"no {what} is called {quoted(name)}", name, known)


def _check_jobs(jobs: list[Any], policies: Json, report: Report) -> None:
    for index, job in enumerate(jobs):
        wanted = job.get("route_policy") if isinstance(job, dict) else None
        if isinstance(wanted, str) and wanted and wanted not in policies:
            place = ((("$", "jobs"), index), "route_policy")
            report.add_misspelt(place, f"no route policy is called {quoted(wanted)}", wanted, policies)

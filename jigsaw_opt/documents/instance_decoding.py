"""Reading `jigsaw-instance/1` (specification: instance)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

from jigsaw_opt.documents.parsing import checked, collection_paused, parsed, report_oddities
from jigsaw_opt.documents.policy_decoding import check_policies
from jigsaw_opt.documents.shape_decoding import check_shape, decode_shape
from jigsaw_opt.problem import (
    Cluster,
    Depth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
)
from jigsaw_opt.problem.depth import depth_class
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.route_policy import RoutePolicy
from jigsaw_opt.problem.rules.report import Place, Report, quoted
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.problem.rules.unchecked import Names, all_names, check_unique, dict_at, list_at, names_of
from jigsaw_opt.problem.shape import ShapedJob

__all__ = ["VALID", "as_valid", "decode_depth", "decode_instance", "decode_instance_tree"]

VALID = "valid"
"""Under this name an instance has a note of its valid form: another instance, or None where it is valid itself."""

Json = dict[str, Any]


def decode_instance(data: bytes | str, source: str = "$") -> Instance:
    """Read an instance document.

    Parameters
    ----------
    data
        The document ``jigsaw-instance/1`` (specification: instance).
    source
        What problems with the document as a whole are said of: ``$`` or a file name.

    Raises
    ------
    InvalidInputError
        With every problem of the document and its path.
    """
    with collection_paused():
        return as_valid(_instance(parsed(data, source, _check)))


def decode_instance_tree(read: Callable[[Report], Json]) -> Instance:
    """Read an instance from a tree of plain values that was made in Python.

    Parameters
    ----------
    read
        Makes the tree, and reports what is wrong with what it is made of.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    with collection_paused():
        return as_valid(_instance(checked(read, "$", _check_made)))


def as_valid(instance: Instance) -> Instance:
    """Note of an instance that it keeps all rules, and return it."""
    instance.noted(VALID, lambda: None)
    return instance


def _check_made(tree: Json, report: Report) -> None:
    report_oddities(tree, report)
    _check(tree, report)


def _check(tree: Json, report: Report) -> None:
    structure("instance")(tree, "$", report)
    _check_meaning(tree, report)


# The structure may be broken when these run, so each looks only at values of the right type.


def _check_meaning(tree: Json, report: Report) -> None:
    _check_cluster(tree, report)
    models = dict_at(tree, "models")
    for name, model in models.items():
        _check_model(model, (("$", "models"), name), report)
    jobs = list_at(tree, "jobs")
    check_unique(names_of(jobs, ("$", "jobs")), report)
    if isinstance(tree.get("models"), dict):
        for index, job in enumerate(jobs):
            wanted = job.get("model") if isinstance(job, dict) and "shape" not in job else None
            if isinstance(wanted, str) and wanted and wanted not in models:
                place = ((("$", "jobs"), index), "model")
                report.add_misspelt(place, f"no model is called {quoted(wanted)}", wanted, models)
    for index, job in enumerate(jobs):
        if isinstance(job, dict) and isinstance(job.get("shape"), dict):
            check_shape(job["shape"], ((("$", "jobs"), index), "shape"), report)
    _check_horizon(tree, jobs, report)


def _check_horizon(tree: Json, jobs: list[Any], report: Report) -> None:
    horizon, objective = tree.get("horizon", "finite"), tree.get("objective")
    if horizon == "finite" and objective == "period":
        report.add(("$", "objective"), '"period" is for the horizon "cyclic"', 'set "horizon": "cyclic"')
    unkept, other = ("pace_us", "cyclic") if horizon == "finite" else ("deadline_us", "finite")
    for index, job in enumerate(jobs):
        if isinstance(job, dict) and unkept in job and horizon in ("finite", "cyclic"):
            report.add(((("$", "jobs"), index), unkept), f"is for the horizon {quoted(other)}")
    if horizon != "cyclic":
        return
    if objective in ("makespan", "weighted_completion"):
        report.add(("$", "objective"), f'{quoted(objective)} is for the horizon "finite"', 'set "objective": "period"')
    for index, job in enumerate(jobs):
        release = job.get("release_us", 0) if isinstance(job, dict) else 0
        if type(release) is int and release > 0:
            report.add(((("$", "jobs"), index), "release_us"), f'must be 0 with the horizon "cyclic"; is {release}')


def _check_cluster(tree: Json, report: Report) -> None:
    cluster, place = dict_at(tree, "cluster"), ("$", "cluster")
    servers, switches, links = (list_at(cluster, key) for key in ("servers", "switches", "links"))
    points: list[tuple[Place, str]] = [
        *names_of(servers, (place, "servers")),
        *((((place, "switches"), index), name) for index, name in enumerate(switches) if isinstance(name, str)),
    ]
    check_unique(points, report)
    check_unique(names_of(links, (place, "links")), report)
    # Where a server or switch has no readable name, an end may well mean it.
    all_named = bool(servers) and isinstance(cluster.get("switches", []), list)
    all_named = all_named and len(points) == len(servers) + len(switches)
    known = {name for _, name in points} if all_named else None
    check_policies(tree, known, report)
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
                report.add(where, f"both ends are {quoted(ends[0])}")
            elif first != index:
                report.add(where, f"joins the same two ends as $.cluster.links[{first}]")


def _check_known(ends: list[Any], place: Place, points: set[str], report: Report) -> None:
    for index, end in enumerate(ends):
        if isinstance(end, str) and end and end not in points:
            report.add_misspelt((place, index), f"no server or switch is called {quoted(end)}", end, points)


def _check_caps(cluster: Json, known: Names | None, place: Place, report: Report) -> None:
    """Power caps have names of their own, and each names servers, no server twice (specification: power-caps)."""
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
                report.add(where, f"server {quoted(name)} stands here twice")
            seen.add(name)


def _check_model(model: Any, place: Place, report: Report) -> None:
    if not isinstance(model, dict):
        return
    segments = list_at(model, "segments")
    check_unique(names_of(segments, (place, "segments")), report)
    if segments:
        _check_levels(model.get("levels"), len(segments), (place, "levels"), report)
        _check_times(segments, (place, "segments"), report)
        _check_cuts(model, len(segments), (place, "executor"), report)


def _check_cuts(model: dict[str, Any], segments: int, place: Place, report: Report) -> None:
    """A training is cut once between each two levels, at different modules."""
    cuts, levels = list_at(dict_at(model, "executor"), "cuts"), list_at(model, "levels")
    if "train" not in dict_at(model, "executor"):
        return
    depth = len(levels) or segments
    if len(cuts) != depth - 1:
        report.add(
            (place, "cuts"), f"must have {depth - 1} items, one fewer than the model has levels; has {len(cuts)}"
        )
    for index, name in enumerate(cuts):
        if name in cuts[:index]:
            report.add(((place, "cuts"), index), f"duplicate name {quoted(str(name))}")


def _check_levels(levels: Any, segments: int, place: Place, report: Report) -> None:
    if not isinstance(levels, list) or not levels or any(type(level) is not int for level in levels):
        return
    for index, (low, high) in enumerate(pairwise(levels), 1):
        if high <= low:
            report.add((place, index), f"levels must rise strictly; {high} follows {low}")
    if levels[-1] != segments:
        report.add(place, f"the last level must be {segments}, the number of segments; is {levels[-1]}")


def _check_times(segments: list[Any], place: Place, report: Report) -> None:
    """Forward times add up to at least 1 on every type that all segments have in both tables."""
    tables = [dict_at(s, key) if isinstance(s, dict) else {} for s in segments for key in ("forward_us", "backward_us")]
    forward = tables[::2]
    for gpu_type in tables[0]:
        if all(gpu_type in table for table in tables) and all(table[gpu_type] == 0 for table in forward):
            report.add(place, f"the forward times on {quoted(gpu_type)} add up to 0; at least 1 is needed")


# From here on the document is known to be right.


def _instance(tree: Json) -> Instance:
    return Instance(
        name=tree["name"],
        cluster=_cluster(tree["cluster"]),
        models={name: _model(model) for name, model in tree["models"].items()},
        jobs=tuple(_job(job) for job in tree["jobs"]),
        horizon=tree.get("horizon", "finite"),
        objective=tree["objective"],
    )


def _cluster(tree: Json) -> Cluster:
    policies, caps = tree.get("route_policies"), tree.get("power_caps")
    return Cluster(
        servers=tuple(Server(**server) for server in tree["servers"]),
        switches=tuple(tree.get("switches", ())),
        links=tuple(Link(**{**link, "ends": tuple(link["ends"])}) for link in tree.get("links", ())),
        route_policies=None if policies is None else {name: _policy(policy) for name, policy in policies.items()},
        power_caps=None if caps is None else tuple(_cap(**cap) for cap in caps),
    )


def _cap(name: str, servers: list[str], watts: int) -> PowerCap:
    return PowerCap(name, tuple(servers), watts)


def _policy(tree: Json) -> RoutePolicy:
    lists: Json = {key: tuple(tree[key]) for key in ("avoid", "avoid_links", "via") if key in tree}
    if "via" in tree:
        lists["via"] = tuple(map(tuple, tree["via"]))
    return RoutePolicy(**{**tree, **lists})


def _model(tree: Json) -> Model:
    segments = tuple(Segment(**segment) for segment in tree["segments"])
    return Model(**{**tree, "segments": segments, "levels": tuple(tree.get("levels", ()))})


def _job(tree: Json) -> Job | ShapedJob:
    if "shape" in tree:
        return ShapedJob(**{**tree, "shape": decode_shape(tree["shape"])})
    if "depth" in tree:
        tree["depth"] = decode_depth(tree["depth"])
    return Job(**tree)


def decode_depth(tree: Json) -> Depth:
    """A depth rule from what stands under ``depth``, of the right structure."""
    rule = tree.pop("rule")
    return depth_class(rule)(**tree) if tree else _plain_depth(rule)


@cache
def _plain_depth(rule: str) -> Depth:
    """One object for the many jobs that say nothing but the rule."""
    return depth_class(rule)()

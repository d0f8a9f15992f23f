"""Reading `jigsaw-instance/1` (specification: instance)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jigsaw_opt.documents.parsing import checked, collection_paused, parsed
from jigsaw_opt.problem import Cluster, Depth, Instance, Job, Link, Model, Segment, Server
from jigsaw_opt.problem.depth import depth_class
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.instance import check_instance
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.rules.model import check_model
from jigsaw_opt.problem.rules.report import Repeats, Report, report_oddities
from jigsaw_opt.problem.rules.schemas import shipped
from jigsaw_opt.problem.rules.structure import compiled, structure
from jigsaw_opt.problem.task_graph import (
    AsynchronousFamily,
    BurstFamily,
    Edge,
    Family,
    MemoryInterval,
    PipelineFamily,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)


def decode_task_graph(tree: Json) -> TaskGraph:
    """Return a task graph from what stands under ``shape``, known to be right."""
    return trusted(
        TaskGraph,
        slots=tuple(trusted(Slot, **slot) for slot in tree["slots"]),
        blocks=tuple(_block(**block) for block in tree["blocks"]),
        transfers=tuple(_transfer(**transfer) for transfer in tree.get("transfers", ())),
        edges=tuple(_edge(*edge) for edge in tree.get("edges", ())),
        barrier=tree.get("barrier", "none"),
        holds=tuple(_hold(**hold) for hold in tree.get("holds", ())),
        family=_family(**tree["family"]) if "family" in tree else None,
    )


def _family(**values: Any) -> Family:
    """Return the family that has these keys."""
    if "micro_batches" in values:
        return trusted(PipelineFamily, **{**values, "stages": tuple(values["stages"])})
    if "replicas" in values:
        return trusted(AsynchronousFamily, **{**values, "replicas": tuple(map(tuple, values["replicas"]))})
    return trusted(BurstFamily, gpus_per_layer=tuple(values["gpus_per_layer"]))


def _block(slot: str = "", slots: Sequence[str] = (), **others: Any) -> TaskGraphBlock:
    return trusted(TaskGraphBlock, slots=tuple(slots) or (slot,), **others)


def _transfer(among: Sequence[str] = (), **others: Any) -> TaskGraphTransfer:
    source, target = others.pop("from", None), others.pop("to", None)
    return trusted(TaskGraphTransfer, source=source, target=target, among=tuple(among), **others)


def _edge(before: str, after: str, lag: int = 0) -> Edge:
    return trusted(Edge, before=before, after=after, lag=lag)


def _hold(**others: Any) -> MemoryInterval:
    return trusted(MemoryInterval, start=others.pop("from"), end=others.pop("to"), **others)


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
        return _instance(parsed(data, source, _check))


def decode_model(data: bytes | str, source: str = "$") -> Model:
    """Read a model as it stands under ``models`` in an instance."""
    return _model(parsed(data, source, _check_model))


def decode_instance_tree(tree: Json, repeats: Repeats) -> Instance:
    """Read an instance from a tree of plain values that was made in Python."""

    def check(tree: Json, report: Report) -> None:
        report_oddities(tree, report, "$", repeats)
        _check(tree, report)

    with collection_paused():
        return _instance(checked(lambda report: tree, "$", check))


def _check(tree: Json, report: Report) -> None:
    structure("instance")(tree, "$", report)
    check_instance(tree, "$", report)


def _check_model(tree: Json, report: Report) -> None:
    compiled({"$ref": "#/$defs/model"}, shipped("instance"))(tree, "$", report)
    check_model(tree, "$", report)


# From here on the document is known to be right.


def _instance(tree: Json) -> Instance:
    return trusted(
        Instance,
        name=tree["name"],
        cluster=_cluster(tree["cluster"]),
        models={name: _model(model) for name, model in tree["models"].items()},
        jobs=tuple([_job(job) for job in tree["jobs"]]),
        horizon=tree.get("horizon", "finite"),
        objective=tree["objective"],
    )


def _cluster(tree: Json) -> Cluster:
    policies, caps = tree.get("route_policies"), tree.get("power_caps")
    return trusted(
        Cluster,
        servers=tuple(trusted(Server, **server) for server in tree["servers"]),
        switches=tuple(tree.get("switches", ())),
        links=tuple(trusted(Link, **{**link, "ends": tuple(link["ends"])}) for link in tree.get("links", ())),
        route_policies=None if policies is None else {name: _policy(policy) for name, policy in policies.items()},
        power_caps=None if caps is None else tuple(_cap(**cap) for cap in caps),
        licences=tree.get("licences"),
    )


def _cap(name: str, servers: list[str], watts: int) -> PowerCap:
    return trusted(PowerCap, name=name, servers=tuple(servers), watts=watts)


def _policy(tree: Json) -> RoutePolicy:
    lists: Json = {key: tuple(tree[key]) for key in ("avoid", "avoid_links", "via") if key in tree}
    if "via" in tree:
        lists["via"] = tuple(map(tuple, tree["via"]))
    return trusted(RoutePolicy, **{**tree, **lists})


def _model(tree: Json) -> Model:
    segments = tuple(trusted(Segment, **segment) for segment in tree["segments"])
    levels = tuple(tree.get("levels") or range(1, len(segments) + 1))
    return trusted(Model, **{**tree, "segments": segments, "levels": levels})


def _job(tree: Json) -> Job | TaskGraphJob:
    if "licences" in tree:
        tree["licences"] = tuple(tree["licences"])
    if "shape" in tree:
        return trusted(TaskGraphJob, **{**tree, "shape": decode_task_graph(tree["shape"])})
    if isinstance(tree.get("depth"), dict):
        tree["depth"] = decode_depth(tree["depth"])
    return trusted(Job, **tree)


def decode_depth(tree: Json) -> Depth:
    """Return a depth rule from what stands under ``depth``, of the right structure."""
    rule = tree.pop("rule")
    return depth_class(rule)(**tree) if tree else _plain_depth(rule)


@cache
def _plain_depth(rule: str) -> Depth:
    """Return one object for the many jobs that say nothing but the rule."""
    return depth_class(rule)()

"""Reading documents: objects of dataclasses from values of JSON, by the types of their fields.

So `jigsaw-instance/1`, `jigsaw-plan/1` and `jigsaw-phased-plan/1` are read (specification: instance, plan,
phased-plans), and whatever else has the keys of its fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from jigsaw_opt.documents.parsing import checked, collection_paused, parsed
from jigsaw_opt.documents.recognising import stated_kind
from jigsaw_opt.problem import Depth, Instance, JobPlan, Model, Plan
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.depth import depth_class
from jigsaw_opt.problem.measured.times import MeasuredJob
from jigsaw_opt.problem.plan import TaskGraphJobPlan
from jigsaw_opt.problem.rules.instance import check_instance
from jigsaw_opt.problem.rules.keyed import Keyed, trusted
from jigsaw_opt.problem.rules.model import check_model
from jigsaw_opt.problem.rules.report import Place, Repeats, Report, report_oddities
from jigsaw_opt.problem.rules.schemas import Kind, shipped
from jigsaw_opt.problem.rules.structure import compiled, structure
from jigsaw_opt.problem.task_graph import Edge, MemoryInterval, TaskGraphBlock, TaskGraphTransfer

Json = dict[str, Any]
Reader = Callable[[Any], Any]


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
        return _instance(parsed(data, source, _check_instance))


def decode_model(data: bytes | str, source: str = "$") -> Model:
    """Read a model as it stands under ``models`` in an instance."""
    found: Model = made(Model, parsed(data, source, _check_model))
    return found


def decode_instance_tree(tree: Json, repeats: Repeats) -> Instance:
    """Read an instance from a tree of plain values that was made in Python."""

    def check(tree: Json, report: Report) -> None:
        report_oddities(tree, report, "$", repeats)
        _check_instance(tree, report)

    with collection_paused():
        return _instance(checked(lambda report: tree, "$", check))


def decode_plan(data: bytes | str, source: str = "$") -> Plan:
    """Read a plan document; whether it is right for an instance is for `checking` to say.

    `data`: the document ``jigsaw-plan/1`` or ``jigsaw-phased-plan/1``, as its ``format`` says; the former if it says
    none. `source`: what problems with the document as a whole are said of: ``$`` or a file name.
    """
    kind: Kind = "phased-plan" if stated_kind(data) == "phased-plan" else "plan"
    with collection_paused():
        tree = parsed(data, source, partial(_check_plan, kind))
        del tree["format"]
        if kind == "phased-plan":
            found: Plan = made(Plan, tree)
            return found
        return Plan.of_jobs(**{**tree, "jobs": made(tuple[JobPlan | TaskGraphJobPlan, ...], tree["jobs"])})


def decode_proof(data: bytes | str, source: str = "$") -> BoundProof:
    """Read a proof of a bound, ``jigsaw-proof/1``; whether it is right is for `checking.proofs` to say.

    `source`: what problems with the document as a whole are said of: ``$`` or a file name.
    """
    tree = parsed(data, source, _check_proof)
    del tree["format"]
    return BoundProof(**tree)


def _instance(tree: Json) -> Instance:
    tree.pop("format", None)
    found: Instance = made(Instance, tree)
    return found


def _check_instance(tree: Json, report: Report) -> None:
    structure("instance")(tree, "$", report)
    check_instance(tree, "$", report)


def _check_model(tree: Json, report: Report) -> None:
    compiled({"$ref": "#/$defs/model"}, shipped("instance"))(tree, "$", report)
    check_model(tree, "$", report)


def _check_plan(kind: Kind, tree: Json, report: Report) -> None:
    structure(kind)(tree, "$", report)
    for place, number in _floats(tree.get("solver"), ("$", "solver")):
        if not math.isfinite(number):
            report.add(place, "must be a finite number", code="out-of-range")


def _check_proof(tree: Json, report: Report) -> None:
    structure("proof")(tree, "$", report)
    for place, number in _floats(tree.get("argument"), ("$", "argument")):
        report.add(place, f"must be an integer; is {number}", code="wrong-type")


def _floats(value: Any, place: Place) -> Iterator[tuple[Place, float]]:
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, list | dict):
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            yield from _floats(item, (place, key))


# From here on the document is known to be right.


def made(kind: Any, tree: Any) -> Any:
    """Return the object of a type that values of JSON stand for, which are known to be right."""
    read = _reader(kind)
    return tree if read is None else read(tree)


def field_values(kind: Any, tree: Json) -> Json:
    """Return the values of some fields of a dataclass, of values of JSON by their names."""
    types = _types(kind)
    return {name: made(types[name], value) for name, value in tree.items()}


@cache
def _types(kind: Any) -> Json:
    return get_type_hints(kind)


@cache
def _reader(kind: Any) -> Reader | None:
    """Return what makes an object of a type of values of JSON; None where they stay as they are."""
    if kind in _OTHERWISE:
        return _OTHERWISE[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _choice([option for option in of if option is not NoneType])
    if origin in (tuple, list):
        return _items(origin, of)
    if origin in (Mapping, dict) and (read := _reader(of[1])):
        return lambda tree: {key: read(value) for key, value in tree.items()}
    return _record(kind) if _names(kind) else None


def _names(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass or named tuple; none of another type."""
    if hasattr(kind, "__dataclass_fields__"):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", ())


@cache
def _record(kind: Any) -> Reader:
    make = partial(trusted, kind) if issubclass(kind, Keyed) else kind
    types = _types(kind)
    inner = [(name, read) for name in _names(kind) if (read := _reader(types[name]))]
    if not inner:
        return lambda tree: make(**tree)
    return lambda tree: make(**tree | {name: read(tree[name]) for name, read in inner if name in tree})


def _items(kind: Callable[[Any], Any], of: tuple[Any, ...]) -> Reader:
    read = _reader(of[0])
    return kind if read is None else lambda items: kind([read(item) for item in items])


def _choice(kinds: list[Any]) -> Reader | None:
    """Return what reads null, or the first type that has all keys of an object."""
    options = [(frozenset(_names(kind)), read) for kind in kinds if (read := _reader(kind))]
    if len(options) == 1:
        only = options[0][1]
        return lambda tree: None if tree is None else only(tree)
    if not options:
        return None
    return lambda tree: None if tree is None else next(read(tree) for names, read in options if names >= tree.keys())


def decode_depth(tree: Any) -> Depth:
    """Return a depth rule from what stands under ``depth``, of the right structure; a rule stays as it is."""
    if isinstance(tree, Depth):
        return tree
    others = {key: value for key, value in tree.items() if key != "rule"}
    return depth_class(tree["rule"])(**others) if others else _plain_depth(tree["rule"])


@cache
def _plain_depth(rule: str) -> Depth:
    """Return one object for the many jobs that say nothing but the rule."""
    return depth_class(rule)()


def _model(tree: Json) -> Model:
    levels = tree.get("levels") or range(1, len(tree["segments"]) + 1)
    found: Model = _record(Model)({**tree, "levels": levels})
    return found


def _block(tree: Json) -> TaskGraphBlock:
    slots = tuple(tree.get("slots", ())) or (tree["slot"],)
    return trusted(TaskGraphBlock, **{key: value for key, value in tree.items() if key != "slot"} | {"slots": slots})


def _renamed(kind: Any, names: Mapping[str, str]) -> Reader:
    """Return what reads an object some of whose keys are not those of the fields."""
    return lambda tree: _record(kind)({names.get(key, key): value for key, value in tree.items()})


def _job_plan(tree: Json) -> JobPlan | TaskGraphJobPlan:
    """Return the plan of a job; where no operation says of which kind it is, it makes no difference."""
    operations = (
        item for iteration in tree["iterations"] for item in (*iteration["blocks"][:1], *iteration["transfers"][:1])
    )
    is_task_graph = next(operations, {}).keys() == {"start_us", "end_us"}
    found: JobPlan | TaskGraphJobPlan = made(TaskGraphJobPlan if is_task_graph else JobPlan, tree)
    return found


_OTHERWISE: Mapping[Any, Reader] = {
    Depth: decode_depth,
    Model: _model,
    TaskGraphBlock: _block,
    TaskGraphTransfer: _renamed(TaskGraphTransfer, {"from": "source", "to": "target"}),
    Edge: lambda row: trusted(Edge, **dict(zip(("before", "after", "lag"), row, strict=False))),
    MemoryInterval: _renamed(MemoryInterval, {"from": "start", "to": "end"}),
    JobPlan | TaskGraphJobPlan: _job_plan,
    MeasuredJob: _renamed(MeasuredJob, {"steps": "iterations"}),
}
"""How those are read that have not the keys of their fields, or none that tells them apart."""

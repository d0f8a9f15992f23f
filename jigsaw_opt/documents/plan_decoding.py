"""Reading `jigsaw-plan/1` and `jigsaw-phased-plan/1` (specification: plan, phased-plans)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from jigsaw_opt.documents.parsing import collection_paused, parsed
from jigsaw_opt.documents.recognising import stated_kind
from jigsaw_opt.problem import Block, Iteration, JobPlan, Phase, PhaseGroup, Plan, Transfer
from jigsaw_opt.problem.plan import Execution, TaskGraphIteration, TaskGraphJobPlan
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.schemas import Kind
from jigsaw_opt.problem.rules.structure import structure


def decode_plan(data: bytes | str, source: str = "$") -> Plan:
    """Read a plan document; whether it is right for an instance is for `checking` to say.

    `data`: the document ``jigsaw-plan/1`` or ``jigsaw-phased-plan/1``, as its ``format`` says; the former if it says
    none. `source`: what problems with the document as a whole are said of: ``$`` or a file name.
    """
    kind: Kind = "phased-plan" if stated_kind(data) == "phased-plan" else "plan"
    with collection_paused():
        tree = parsed(data, source, _check(kind))
        del tree["format"]
        if kind == "phased-plan":
            groups = tuple(PhaseGroup(tuple(map(_phase, group["phases"]))) for group in tree["groups"])
            return Plan(**{**tree, "groups": groups})
        return Plan.of_jobs(**{**tree, "jobs": tuple(_job(job) for job in tree["jobs"])})


def _check(kind: Kind) -> Callable[[dict[str, Any], Report], None]:
    def check(tree: dict[str, Any], report: Report) -> None:
        structure(kind)(tree, "$", report)
        for place in _not_finite(tree.get("solver"), ("$", "solver")):
            report.add(place, "must be a finite number", code="out-of-range")

    return check


def _not_finite(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, float) and not math.isfinite(value):
        yield place
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, (place, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, (place, key))


def _phase(tree: dict[str, Any]) -> Phase:
    return Phase(**{**tree, "jobs": tuple(_job(job) for job in tree["jobs"])})


def _job(tree: dict[str, Any]) -> JobPlan | TaskGraphJobPlan:
    name, gpus, iterations = tree["name"], tuple(tree["gpus"]), tree["iterations"]
    if _is_task_graph(iterations):
        return TaskGraphJobPlan(name, gpus, tuple(_task_graph_iteration(item) for item in iterations))
    return JobPlan(name, gpus, tuple(_iteration(item) for item in iterations))


def _is_task_graph(iterations: list[dict[str, Any]]) -> bool:
    """Return whether the operations have neither level nor bucket; where there are none, it makes no difference."""
    first = next(
        (item for iteration in iterations for item in (*iteration["blocks"][:1], *iteration["transfers"][:1])), None
    )
    return first is not None and first.keys() == {"start_us", "end_us"}


def _task_graph_iteration(tree: dict[str, Any]) -> TaskGraphIteration:
    return TaskGraphIteration(
        tuple(Execution(item["start_us"], item["end_us"]) for item in tree["blocks"]),
        tuple(Execution(item["start_us"], item["end_us"]) for item in tree["transfers"]),
    )


def _iteration(tree: dict[str, Any]) -> Iteration:
    return Iteration(
        tuple(Block(block["level"], block["start_us"], block["end_us"]) for block in tree["blocks"]),
        tuple(Transfer(item["bucket"], item["start_us"], item["end_us"]) for item in tree["transfers"]),
    )

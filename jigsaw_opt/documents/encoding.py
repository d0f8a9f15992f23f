"""Writing documents, and the hash that ties a plan to its instance (specification: hash)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jigsaw_opt.arguments import typed
from jigsaw_opt.problem import Instance, Iteration, JobPlan, Model, Phase, Plan
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.measured.layers import LayerGraph
from jigsaw_opt.problem.plan import Block, Execution, TaskGraphIteration, TaskGraphJobPlan, Transfer
from jigsaw_opt.problem.rules.keyed import plain
from jigsaw_opt.problem.rules.model import check_layers
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.text import json_text

Json = dict[str, Any]
_LONGEST_LINE = 110
"""Characters of an object of a proof that is written on one line."""


def canonical_json(instance: Instance) -> bytes:
    """Return the canonical form of an instance that its hash is taken of (specification: hash).

    Every default is written out; keys are sorted by code point; there is no whitespace.
    """
    return json.dumps(plain(instance, flat=True), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


@typed
def instance_sha256(instance: Instance) -> str:
    """Return the SHA-256 of the canonical form in lower-case hex, as plans state it (specification: hash)."""
    return instance.noted("sha256", lambda: hashlib.sha256(canonical_json(instance)).hexdigest())


def encode_instance(instance: Instance) -> bytes:
    """Write an instance as ``jigsaw-instance/1`` with every default; a server, segment, link or job a line.

    Of a task-graph job a line each has a slot, an operation, an edge and a hold.
    """
    return ("".join(_pretty(plain(instance, flat=True), "\n")) + "\n").encode()


def encode_model(model: Model) -> bytes:
    """Write one model as it stands under ``models`` in an instance, a segment a line."""
    return ("".join(_pretty(plain(model, flat=True), "\n")) + "\n").encode()


def encode_layers(graph: LayerGraph) -> bytes:
    """Write a layer profile as ``jigsaw-layers/1``, a layer a line; what is not known is left out."""
    tree: Json = {"format": "jigsaw-layers/1"}
    for key in ("gpu_type", "batch", "state_factor"):
        if (value := getattr(graph, key)) is not None:
            tree[key] = value
    tree["layers"] = [{k: v for k, v in asdict(layer).items() if v not in (None, ())} for layer in graph.layers]
    for layer in tree["layers"]:
        layer |= {key: list(value) for key, value in layer.items() if isinstance(value, tuple)}
    if not graph.is_chain:
        tree["edges"] = [list(edge) for edge in graph.edges]
    report = Report()
    structure("layers")(tree, "LayerGraph", report)
    check_layers(tree, "LayerGraph", report)
    report.raise_if_any()
    return ("".join(_pretty(tree, "\n")) + "\n").encode()


def encode_plan(plan: Plan) -> bytes:
    """Write a plan: a phased one as ``jigsaw-phased-plan/1``, others as ``jigsaw-plan/1``; an iteration a line."""
    if plan.is_phased:
        groups = [
            '\n    {"phases": [' + ",".join(f"\n      {_phase(phase)}" for phase in group.phases) + "]}"
            for group in plan.groups
        ]
        head = _head("jigsaw-phased-plan/1", plan, {})
        return ("{\n" + head + f'  "groups": [{",".join(groups)}\n  ]\n}}\n').encode()
    head = _head("jigsaw-plan/1", plan, {"period_us": plan.period_us})
    return ("{\n" + head + f'  "jobs": [{_job_plans(plan.jobs, "    ")}\n  ]\n}}\n').encode()


def encode_proof(proof: BoundProof) -> bytes:
    """Write a proof of a bound as ``jigsaw-proof/1``; an object or list of others that is long has a line for each."""
    head = {field: getattr(proof, field) for field in ("instance", "instance_sha256", "objective", "bound", "argument")}
    return (_in_lines({"format": "jigsaw-proof/1", **head}, "\n") + "\n").encode()


def _in_lines(value: object, margin: str) -> str:
    """Return JSON with a line for each entry of what is long and no list of plain values, behind `margin`."""
    inner = margin + " "
    if isinstance(value, Mapping):
        ends, parts = "{}", [f"{json_text(key)}: {_in_lines(item, inner)}" for key, item in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        ends, parts = "[]", [_in_lines(item, inner) for item in value]
    else:
        return json_text(value)
    flat = ", ".join(parts)
    if len(flat) <= _LONGEST_LINE and "\n" not in flat:
        return ends[0] + flat + ends[1]
    return ends[0] + inner + f",{inner}".join(parts) + margin + ends[1]


def _head(form: str, plan: Plan, more: Json) -> str:
    names = ("instance", "instance_sha256", "status", "objective", "bound")
    head = {"format": form, **{name: getattr(plan, name) for name in names}, **more, "solver": dict(plan.solver)}
    return "".join(f"  {json_text(key)}: {json_text(value)},\n" for key, value in head.items())


def _phase(phase: Phase) -> str:
    numbers = {"start_us": phase.start_us, "period_us": phase.period_us, "repeats": phase.repeats}
    stated = ", ".join(f"{json_text(key)}: {value}" for key, value in numbers.items())
    return f'{{{stated}, "jobs": [{_job_plans(phase.jobs, " " * 8)}]}}'


def _job_plans(jobs: Sequence[JobPlan | TaskGraphJobPlan], margin: str) -> str:
    """Write job plans, each from a line of its own on, behind `margin`."""
    return ",".join(
        f'\n{margin}{{"name": {json_text(job.name)}, "gpus": {json_text(job.gpus)}, "iterations": ['
        + ",".join(f"\n{margin}  {_iteration(iteration)}" for iteration in job.iterations)
        + "]}"
        for job in jobs
    )


def _iteration(iteration: Iteration | TaskGraphIteration) -> str:
    blocks, transfers = _executions(iteration.blocks, "level"), _executions(iteration.transfers, "bucket")
    return f'{{"blocks": [{blocks}], "transfers": [{transfers}]}}'


def _executions(executions: Sequence[Block | Transfer | Execution], key: str) -> str:
    """Write executions, each behind the number that it has under `key`, if it has one."""
    numbers = (getattr(execution, key, None) for execution in executions)
    heads = ("" if number is None else f'"{key}": {number}, ' for number in numbers)
    return ", ".join(
        f'{{{head}"start_us": {one.start_us}, "end_us": {one.end_us}}}'
        for head, one in zip(heads, executions, strict=True)
    )


_BROKEN_OVER_LINES = {"cluster", "servers", "links", "models", "segments", "jobs", "layers"} | {
    *("shape", "slots", "blocks", "transfers", "edges", "holds")
}


def _pretty(tree: Json, margin: str) -> Iterator[str]:
    """Write an object over several lines, and what stands in its longer lists one item a line."""
    inner = margin + "  "
    yield "{"
    for index, (key, value) in enumerate(tree.items()):
        yield f"{',' if index else ''}{inner}{json_text(key)}: "
        if isinstance(value, list) and value and key in _BROKEN_OVER_LINES:
            yield "["
            for number, item in enumerate(value):
                yield f"{',' if number else ''}{inner}  "
                if isinstance(item, dict) and "shape" in item:
                    yield from _pretty(item, f"{inner}  ")
                else:
                    yield json_text(item)
            yield f"{inner}]"
        elif isinstance(value, dict) and value and (key in _BROKEN_OVER_LINES or "segments" in value):
            yield from _pretty(value, inner)
        else:
            yield json_text(value)
    yield margin + "}"

"""Writing both documents, and the hash that ties a plan to its instance (specification: hash)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from jigsaw_opt.problem import Cluster, Depth, Instance, Iteration, Job, JobPlan, Model, Phase, Plan
from jigsaw_opt.problem.plan import Execution, ShapedIteration, ShapedJobPlan
from jigsaw_opt.problem.shape import Edge, Hold, Shape, ShapedBlock, ShapedJob, ShapedTransfer
from jigsaw_opt.text import json_text

__all__ = [
    "canonical_json",
    "encode_depth",
    "encode_instance",
    "encode_model",
    "encode_part",
    "encode_plan",
    "instance_sha256",
]

Json = dict[str, Any]


def canonical_json(instance: Instance) -> bytes:
    """The canonical form of an instance that its hash is taken of (specification: hash).

    Every default is written out; keys are sorted by code point; there is no whitespace.
    """
    return json.dumps(_tree(instance), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def instance_sha256(instance: Instance) -> str:
    """SHA-256 of the canonical form in lower-case hex, as plans state it (specification: hash)."""
    return instance.noted("sha256", lambda: hashlib.sha256(canonical_json(instance)).hexdigest())


def encode_instance(instance: Instance) -> bytes:
    """Write an instance as ``jigsaw-instance/1`` with every default; a server, segment, link or job a line.

    Of a shaped job a line each has a slot, an operation, an edge and a hold.
    """
    return ("".join(_pretty(_tree(instance), "\n")) + "\n").encode()


def encode_model(model: Model) -> bytes:
    """Write one model as it stands under ``models`` in an instance, a segment a line."""
    return ("".join(_pretty(_model(model), "\n")) + "\n").encode()


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


def _head(form: str, plan: Plan, more: Json) -> str:
    head: Json = {
        "format": form,
        "instance": plan.instance,
        "instance_sha256": plan.instance_sha256,
        "status": plan.status,
        "objective": plan.objective,
        "bound": plan.bound,
        **more,
        "solver": dict(plan.solver),
    }
    return "".join(f"  {_line(key)}: {_line(value)},\n" for key, value in head.items())


def _phase(phase: Phase) -> str:
    numbers = {"start_us": phase.start_us, "period_us": phase.period_us, "repeats": phase.repeats}
    stated = ", ".join(f"{_line(key)}: {value}" for key, value in numbers.items())
    return f'{{{stated}, "jobs": [{_job_plans(phase.jobs, " " * 8)}]}}'


def _job_plans(jobs: Sequence[JobPlan | ShapedJobPlan], margin: str) -> str:
    """Each from a line of its own on, behind `margin`."""
    return ",".join(
        f'\n{margin}{{"name": {_line(job.name)}, "gpus": {_line(job.gpus)}, "iterations": ['
        + ",".join(f"\n{margin}  {_iteration(iteration)}" for iteration in job.iterations)
        + "]}"
        for job in jobs
    )


def _iteration(iteration: Iteration | ShapedIteration) -> str:
    if isinstance(iteration, ShapedIteration):
        return f'{{"blocks": [{_executions(iteration.blocks)}], "transfers": [{_executions(iteration.transfers)}]}}'
    blocks = [
        f'{{"level": {block.level}, "start_us": {block.start_us}, "end_us": {block.end_us}}}'
        for block in iteration.blocks
    ]
    transfers = [
        f'{{"bucket": {transfer.bucket}, "start_us": {transfer.start_us}, "end_us": {transfer.end_us}}}'
        for transfer in iteration.transfers
    ]
    return f'{{"blocks": [{", ".join(blocks)}], "transfers": [{", ".join(transfers)}]}}'


def _executions(executions: Sequence[Execution]) -> str:
    return ", ".join(f'{{"start_us": {it.start_us}, "end_us": {it.end_us}}}' for it in executions)


def _tree(instance: Instance) -> Json:
    return {
        "format": "jigsaw-instance/1",
        "name": instance.name,
        "cluster": _cluster(instance.cluster),
        "models": {name: _model(model) for name, model in instance.models.items()},
        "jobs": [_job(job) for job in instance.jobs],
        "horizon": instance.horizon,
        "objective": instance.objective,
    }


def _cluster(cluster: Cluster) -> Json:
    tree: Json = {
        "servers": [asdict(server) for server in cluster.servers],
        "switches": list(cluster.switches),
        "links": [asdict(link) for link in cluster.links],
    }
    if cluster.route_policies is not None:
        tree["route_policies"] = {name: encode_part(policy) for name, policy in cluster.route_policies.items()}
    if cluster.power_caps is not None:
        tree["power_caps"] = [encode_part(cap) for cap in cluster.power_caps]
    return tree


def _model(model: Model) -> Json:
    tree: Json = {
        "segments": [
            {
                "name": segment.name,
                "forward_us": dict(segment.forward_us),
                "backward_us": dict(segment.backward_us),
                "parameter_bytes": segment.parameter_bytes,
                "activation_bytes": segment.activation_bytes,
            }
            for segment in model.segments
        ],
        "levels": list(model.levels),
        "state_factor": model.state_factor,
    }
    if model.executor is not None:
        tree["executor"] = dict(model.executor)
    if model.power_w is not None:
        tree["power_w"] = dict(model.power_w)
    return tree


def _job(job: Job | ShapedJob) -> Json:
    if isinstance(job, ShapedJob):
        return {**encode_part(job), "shape": _shape(job.shape)}
    return {**encode_part(job), "depth": encode_depth(job.depth)}


def _shape(shape: Shape) -> Json:
    parts = ("slots", "blocks", "transfers", "edges", "holds")
    return {
        **encode_part(shape),
        **{name: [encode_part(part) for part in getattr(shape, name)] for name in parts},
    }


def encode_part(part: Any) -> Any:
    """A part of an instance as a document has it, its own parts left as they are.

    Parameters
    ----------
    part
        An object of any dataclass. A field without a value is a key that is not there.
    """
    held = {field.name: getattr(part, field.name) for field in fields(part)}
    match part:
        case Edge():
            return list(held.values())
        case Hold():
            held = {"from": part.start, "to": part.end, "bytes": part.bytes, "slot": part.slot}
        case ShapedBlock():
            alone = isinstance(part.slots, list | tuple) and len(part.slots) == 1
            at = {"slot": part.slots[0]} if alone else {"slots": part.slots}
            held = {"name": part.name, **at, "duration_us": part.duration_us, "power_w": part.power_w}
        case ShapedTransfer():
            way = {"among": part.among or None, "from": part.source, "to": part.target}
            held = {"name": part.name, "bytes": part.bytes, **way}
    return {key: value for key, value in held.items() if value is not None}


def encode_depth(depth: Depth) -> Json:
    """A depth rule as it stands under ``depth`` in an instance."""
    given = {field.name: getattr(depth, field.name) for field in fields(depth)}
    return {"rule": depth.rule, **{key: value for key, value in given.items() if value is not None}}


_BROKEN_OVER_LINES = {"cluster", "servers", "links", "models", "segments", "jobs"} | {
    *("shape", "slots", "blocks", "transfers", "edges", "holds")
}


def _pretty(tree: Json, margin: str) -> Iterator[str]:
    """Write an object over several lines, and what stands in its longer lists one item a line."""
    inner = margin + "  "
    yield "{"
    for index, (key, value) in enumerate(tree.items()):
        yield f"{',' if index else ''}{inner}{_line(key)}: "
        if isinstance(value, list) and value and key in _BROKEN_OVER_LINES:
            yield "["
            for number, item in enumerate(value):
                yield f"{',' if number else ''}{inner}  "
                if isinstance(item, dict) and "shape" in item:
                    yield from _pretty(item, f"{inner}  ")
                else:
                    yield _line(item)
            yield f"{inner}]"
        elif isinstance(value, dict) and value and (key in _BROKEN_OVER_LINES or "segments" in value):
            yield from _pretty(value, inner)
        else:
            yield _line(value)
    yield margin + "}"


def _line(value: object) -> str:
    return json_text(value)

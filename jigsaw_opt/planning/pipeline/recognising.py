"""Recognition of pipelines by the names and edges of a task graph, and the order of their passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, product

from jigsaw_opt.errors import InvalidInputError, Problem, unsupported
from jigsaw_opt.planning.pipeline.orders import Kind, Orders, Pass, PipelineLayout
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan, TaskGraphJobPlan
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob

_BLOCK = re.compile(r"([FBW])(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")
"""Kind, micro-batch and stage."""


def pipeline_of(instance: Instance, plan: Plan) -> tuple[int, PipelineLayout]:
    """Return the number of the only job that is a pipeline, and its layout."""
    number, layout = only_pipeline(instance)
    orders = [orders_of(instance, plan, number, iteration) for iteration in range(instance.jobs[number].iterations)]
    if any(order != orders[0] for order in orders):
        raise unsupported("plan", "the plan orders the passes of some iteration otherwise than those of another")
    return number, layout


def only_pipeline(instance: Instance) -> tuple[int, PipelineLayout]:
    """Return the number of the only job that is a pipeline, and its layout."""
    report, found = Report(), dict[int, PipelineLayout]()
    for number, job in enumerate(instance.jobs):
        if not isinstance(job, TaskGraphJob):
            continue
        layout = layout_of(job.shape)
        if isinstance(layout, str):
            report.add((("$", "jobs"), number), f"job {job.name!r} is no pipeline: {layout}", code="unsupported")
        else:
            found[number] = layout
    if len(found) > 1:
        names = ", ".join(repr(instance.jobs[number].name) for number in found)
        raise InvalidInputError(
            [Problem("$.jobs", f"has several pipelines, {names}; one is taken here", code="ambiguous")]
        )
    if not found:
        report.raise_if_any()
        raise InvalidInputError(
            [Problem("$.jobs", "has no pipeline", "jigsaw pipeline -o INSTANCE makes one", code="empty")]
        )
    return next(iter(found.items()))


def recomputed_stages(shape: TaskGraph) -> tuple[int, ...]:
    """Return the stages of a pipeline that compute activations again, which are held from the backward pass on."""
    return tuple(sorted({_pass(hold.start).stage for hold in shape.holds if hold.start.startswith("B")}))


def orders_of(instance: Instance, plan: Plan, job: int = 0, iteration: int = 0) -> Orders:
    """Return for each GPU the passes of a pipeline in the order of a plan."""
    asked, done = instance.jobs[job], plan.jobs[job]
    assert isinstance(asked, TaskGraphJob) and isinstance(done, TaskGraphJobPlan), "a pipeline has a task graph"
    orders: dict[str, list[tuple[int, Pass]]] = {slot.name: [] for slot in asked.shape.slots}
    for block, run in zip(asked.shape.blocks, done.iterations[iteration].blocks, strict=True):
        orders[block.slots[0]].append((run.start_us, _pass(block.name)))
    return [[pass_ for _, pass_ in sorted(order, key=lambda at: at[0])] for order in orders.values()]


def _pass(name: str) -> Pass:
    batch, _, stage = name[1:].partition(".")
    kinds: dict[str, Kind] = {"F": "F", "B": "B", "W": "W"}
    return Pass(kinds[name[0]], int(batch), int(stage))


def layout_of(shape: TaskGraph) -> PipelineLayout | str:
    """Return the layout of a task graph that `pipeline_task_graph` makes, or say what keeps another from being a
    pipeline."""
    found = _passes_of(shape)
    if not isinstance(found, str) and (any(edge.lag for edge in shape.edges) or shape.barrier == "none"):
        return "its iterations overlap, as with --schedule async"
    return found if isinstance(found, str) else _with_edges(shape, found, _waits)


def flow_of(shape: TaskGraph) -> PipelineLayout | str:
    """Return the layout of a task graph that `asynchronous` makes with a copy a stage, or say what keeps another from
    it."""
    found = _passes_of(shape)
    if isinstance(found, str):
        return found
    if found.micro_batches > 1 or found.split or found.stages != found.gpus:
        return "some stage has copies or is beside another one" if shape.barrier == "none" else "its iterations end"
    behind = [edge for edge in shape.edges if edge.lag]
    if shape.barrier != "none" or [(edge.before, edge.after) for edge in behind] != [("B0.0", "F0.0")]:
        return "its iterations do not overlap as with --schedule async"
    return _with_edges(replace(shape, edges=tuple(edge for edge in shape.edges if not edge.lag)), found, _flow_waits)


def _passes_of(shape: TaskGraph) -> PipelineLayout | str:
    """Return the layout that the blocks of a task graph have, or say what keeps them from being passes of a
    pipeline."""
    found = dict[tuple[str, int, int], str]()
    for block in shape.blocks:
        match = _BLOCK.fullmatch(block.name)
        if match is None:
            return f"block {block.name!r} is not called as a pass is, as in F3.0"
        if len(block.slots) > 1:
            return f"block {block.name!r} takes part in several slots"
        found[match[1], int(match[2]), int(match[3])] = block.slots[0]
    kinds = "FBW" if any(kind == "W" for kind, _, _ in found) else "FB"
    batches, stages = 1 + max(batch for _, batch, _ in found), 1 + max(stage for _, _, stage in found)
    # Counting comes first: a name such as F0.999999999 must not make this go through all passes that it implies.
    if len(found) < len(kinds) * batches * stages:
        # The first missing one is among the first `len(found) + 1`.
        wanted = ((kind, b, s) for kind, b, s in product(kinds, range(batches), range(stages)))
        kind, batch, stage = next(key for key in wanted if key not in found)
        return f"it has no block {kind}{batch}.{stage}"
    slots = {slot.name: number for number, slot in enumerate(shape.slots)}
    gpu_of = [slots[found["F", 0, stage]] for stage in range(stages)]
    for (kind, batch, stage), slot in found.items():
        if slots[slot] != gpu_of[stage] and shape.barrier != "none":
            return f"block {kind}{batch}.{stage} has another slot than F0.{stage}"
    return PipelineLayout(tuple(gpu_of), batches, len(kinds) == 3)


def _with_edges(shape: TaskGraph, layout: PipelineLayout, wanted_of: _Waits) -> PipelineLayout | str:
    """Return the layout, or say what is wrong with what passes wait for."""
    sent = {transfer.name for transfer in shape.transfers}
    # A transfer between two passes counts as one wait of the later pass for the earlier one.
    after: dict[str, str] = {edge.before: edge.after for edge in shape.edges if edge.before in sent}
    waits = {(edge.before, after.get(edge.after, edge.after)) for edge in shape.edges if edge.before not in sent}
    wanted = set(wanted_of(layout))
    missing = min(wanted - waits, default=None)
    if missing is not None:
        return f"{missing[1]} does not wait for {missing[0]}"
    strange = min(waits - wanted, default=None)
    return layout if strange is None else f"{strange[1]} waits for {strange[0]}"


_Waits = Callable[[PipelineLayout], Iterator[tuple[str, str]]]
"""Passes of a pipeline, and what waits for each."""


def _waits(layout: PipelineLayout) -> Iterator[tuple[str, str]]:
    for batch, stage in product(range(layout.micro_batches), range(layout.stages)):
        for one, other in pairwise("FBW" if layout.split else "FB"):
            yield f"{one}{batch}.{stage}", f"{other}{batch}.{stage}"
        if stage + 1 < layout.stages:
            yield f"F{batch}.{stage}", f"F{batch}.{stage + 1}"
            yield f"B{batch}.{stage + 1}", f"B{batch}.{stage}"


def _flow_waits(layout: PipelineLayout) -> Iterator[tuple[str, str]]:
    last = layout.stages - 1
    yield f"F0.{last}", f"B0.{last}"
    for stage in range(last):
        yield f"F0.{stage}", f"F0.{stage + 1}"
        yield f"B0.{stage + 1}", f"B0.{stage}"

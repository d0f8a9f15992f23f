"""The pipeline that an instance states, and the order of its passes in a plan."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import unsupported, wrong_input
from jigsaw_opt.planning.pipeline.orders import Orders, Pass, PipelineLayout
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Block, Execution, Plan
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.task_graph import AsynchronousFamily, Family, PipelineFamily, TaskGraph

STATED_BY = 'jigsaw pipeline -o writes one, as "family": {"stages": ["gpu0", "gpu1"], "micro_batches": 4} in its shape'
"""Where a family comes from."""


def pipeline_of(instance: Instance, plan: Plan) -> tuple[int, PipelineLayout]:
    """Return the number of the only job that is a pipeline, and its layout."""
    number, layout = only_pipeline(instance)
    orders = [orders_of(instance, plan, number, iteration) for iteration in range(instance.jobs[number].iterations)]
    if any(order != orders[0] for order in orders):
        raise unsupported("plan", "the plan orders the passes of some iteration otherwise than those of another")
    return number, layout


def only_pipeline(instance: Instance) -> tuple[int, PipelineLayout]:
    """Return the number of the only job that states to be a pipeline with a flush, and its layout."""
    report, found = Report(), dict[int, PipelineLayout]()
    for number, shape in instance.task_graph_of.items():
        layout = layout_of(shape)
        if layout is None:
            told = f"job {instance.jobs[number].name!r} is no pipeline: {family_told(shape.family)}"
            report.add((("$", "jobs"), number), told, STATED_BY, code="unsupported")
        else:
            found[number] = layout
    if len(found) > 1:
        names = ", ".join(repr(instance.jobs[number].name) for number in found)
        raise wrong_input("$.jobs", f"has several pipelines, {names}; one is taken here", code="ambiguous")
    if not found:
        report.raise_if_any()
        raise wrong_input("$.jobs", "has no pipeline", "jigsaw pipeline -o INSTANCE makes one", code="empty")
    return next(iter(found.items()))


def family_told(family: Family | None) -> str:
    """Return what a job that is no pipeline with a flush states in place of it."""
    if isinstance(family, AsynchronousFamily):
        return "its iterations overlap, as with --schedule async"
    return "it states no family" if family is None else "it is a burst"


def recomputed_stages(shape: TaskGraph) -> tuple[int, ...]:
    """Return the stages of a pipeline that compute activations again, which are held from the backward pass on."""
    passes, starts = _passes(shape), {hold.start for hold in shape.holds}
    return tuple(sorted({passes[name].stage for name in starts if passes[name].kind == "B"}))


def orders_of(instance: Instance, plan: Plan, job: int = 0, iteration: int = 0) -> Orders:
    """Return for each GPU the passes of a pipeline in the order of a plan."""
    shape = instance.task_graph_of[job]
    passes = _passes(shape)
    orders: dict[str, list[tuple[int, Pass]]] = {slot.name: [] for slot in shape.slots}
    done: Sequence[Block | Execution] = plan.jobs[job].iterations[iteration].blocks
    for block, run in zip(shape.blocks, done, strict=True):
        orders[block.slots[0]].append((run.start_us, passes[block.name]))
    return [[pass_ for _, pass_ in sorted(order, key=lambda at: at[0])] for order in orders.values()]


def _passes(shape: TaskGraph) -> dict[str, Pass]:
    """Return the passes of a pipeline by the names of their blocks."""
    layout = layout_of(shape)
    assert layout is not None, "the job is a pipeline"
    return {pass_.name: pass_ for pass_ in layout.passes()}


def layout_of(shape: TaskGraph) -> PipelineLayout | None:
    """Return the layout of a pipeline with a flush; None of any other task graph."""
    family = shape.family
    if not isinstance(family, PipelineFamily):
        return None
    number = {slot.name: number for number, slot in enumerate(shape.slots)}
    return PipelineLayout(tuple(number[slot] for slot in family.stages), family.micro_batches, family.split)


def flow_of(shape: TaskGraph) -> PipelineLayout | None:
    """Return the layout of an asynchronous pipeline with a copy a stage; None of any other task graph."""
    family = shape.family
    if not isinstance(family, AsynchronousFamily) or any(len(copies) > 1 for copies in family.replicas):
        return None
    number = {slot.name: number for number, slot in enumerate(shape.slots)}
    return PipelineLayout(tuple(number[slot] for [slot] in family.replicas), 1, False)

"""Orders of passes timed: plans of a pipeline, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InfeasibleError, WrongPlanError
from jigsaw_opt.planning.pipeline.orders import Orders
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, peak_bytes, pipeline_instance
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem.compiled.activities import TaskGraphDecision, assemble_task_graphs
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.problem.plan import Plan, TaskGraphJobPlan
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities, flatten, network_of
from jigsaw_opt.solvers.activities.ranks import in_order
from jigsaw_opt.solvers.activities.repeating import earliest, repeated
from jigsaw_opt.solvers.activities.timetables import timetable_of
from jigsaw_opt.solvers.bounds.driver import lower_bound
from jigsaw_opt.solvers.correct import require_correct

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PipelineSchedule:
    """Orders of passes on GPUs, and their plans on both horizons.

    `finite`: one iteration, as short as the orders allow. `cyclic`: iterations one behind the other on each GPU, as
    close as the orders allow. `makespan_us, period_us`: time of one iteration alone, and from one to the next.
    `bubble`: share of the period that GPUs are idle, on average. `peak_bytes`: by GPU, the most memory that is held at
    once.
    """

    pipeline: PipelineProblem
    finite: Planned[Orders]
    cyclic: Planned[Orders]
    makespan_us: int
    period_us: int
    bubble: float
    peak_bytes: tuple[int, ...]


def require_memory(pipeline: PipelineProblem, orders: Orders, schedule: str) -> None:
    """Refuse orders that hold more than GPUs have.

    `orders`: by GPU, its passes in their order.
    """
    peak = peak_bytes(pipeline, orders)
    if max(peak) > pipeline.room:
        worst = peak.index(max(peak))
        raise InfeasibleError(f"{schedule} holds {peak[worst]} bytes on GPU {worst}, and a GPU has {pipeline.room}")


def schedule_of(pipeline: PipelineProblem, orders: Orders, name: str, schedule: str) -> PipelineSchedule:
    """Time orders of passes on both horizons.

    The finite and the cyclic plan with their instances, the idle share, and peak bytes by GPU.
    """
    finite = plan_of_orders(pipeline, orders, name, "finite", schedule)
    cyclic = plan_of_orders(pipeline, orders, name, "cyclic", schedule)
    assert finite.objective is not None and cyclic.objective is not None, "orders have plans"
    bubble = 1 - sum(pipeline.work_us) / (cyclic.objective * pipeline.layout.gpus)
    peak = peak_bytes(pipeline, orders)
    return PipelineSchedule(pipeline, finite, cyclic, finite.objective, cyclic.objective, bubble, peak)


def timetable_of_orders(pipeline: PipelineProblem, instance: Instance, orders: Orders) -> Timetable:
    """Return the timetable in which each pass begins as early as the orders allow.

    `orders`: by GPU, its passes in their order.
    """
    operations = compile_instance(instance)
    gpus = [[(0, gpu) for gpu in range(pipeline.layout.gpus)]]
    network = network_of(operations, gpus)
    flat = flatten(network)
    order = _joint_order(operations.task_graphs[0], flat, orders)
    if instance.horizon == "finite":
        return timetable_of(operations, network.jobs, gpus, earliest(flat, order), None)
    # In a period of all durations together, operations follow one another, so that any order which repeats at all does
    # so.
    found = repeated(flat, order, sum(flat.duration_us))
    if found is None:
        raise WrongPlanError("the orders do not repeat")
    return timetable_of(operations, network.jobs, gpus, found[1], found[0])


def plan_of_orders(
    pipeline: PipelineProblem, orders: Orders, name: str, horizon: Horizon, schedule: str
) -> Planned[Orders]:
    """Return the instance of a pipeline, and the checked plan of orders of its passes, with a fast bound.

    `orders`: by GPU, its passes in their order.
    """
    instance = pipeline_instance(pipeline, name, horizon)
    operations = compile_instance(instance)
    timetable = timetable_of_orders(pipeline, instance, orders)
    return _checked_plan(operations, timetable.task_graph_jobs, timetable.period_us, schedule, orders)


def plan_of_starts(
    instance: Instance, starts: Mapping[str, int], period_us: int, schedule: str, details: T
) -> Planned[T]:
    """Return the checked plan of an instance of one job, slot by slot on the GPUs of its server, with a fast bound.

    `starts`: by the name of an operation, when it starts, in microseconds.
    """
    operations = compile_instance(instance)
    shape = operations.task_graphs[0].shape
    row = [starts[name] for name in shape.operations]
    decision = TaskGraphDecision([(0, gpu) for gpu in range(len(shape.slots))], [row])
    jobs = assemble_task_graphs(operations, [decision])
    return _checked_plan(operations, jobs, period_us, schedule, details)


def _checked_plan(
    operations: Operations, jobs: tuple[TaskGraphJobPlan, ...], period_us: int | None, schedule: str, details: T
) -> Planned[T]:
    """Return the checked plan of a schedule, with a fast bound."""
    objective, proven = objective_of(operations, (), period_us, jobs), lower_bound(operations)
    bound, instance = min(objective, proven.value), operations.instance
    plan = Plan.of_jobs(
        instance.name,
        instance_sha256(instance),
        "optimal" if bound == objective else "feasible",
        objective,
        bound,
        period_us,
        jobs,
        {"name": "pipeline", "schedule": schedule},
    )
    require_correct(instance, plan, "a schedule")
    return Planned(instance, plan, bound, proven.proof, details)


def _joint_order(graph: CompiledTaskGraph, flat: FlatActivities, orders: Orders) -> list[int]:
    """Return all operations, each behind what it waits for and behind the one before it on its GPU."""
    number = {block.name: n for n, block in enumerate(graph.shape.blocks)}
    pairs = [pair for order in orders for pair in pairwise(number[each.name] for each in order)]
    arcs = [*flat.arcs, *(Arc(before, after, 0, 0) for before, after in pairs)]
    found = in_order(flat._replace(arcs=arcs), [0] * len(flat.job))
    if len(found) < len(flat.job):
        raise WrongPlanError("the orders of the GPUs wait for one another")
    return found

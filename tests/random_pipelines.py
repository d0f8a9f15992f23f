"""Pipelines with random costs, on few GPUs, with plans that are correct and in any order that passes can take."""

from __future__ import annotations

from random import Random

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.orders import Orders, Pass, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import timetable_of_orders
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_instance
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import objective_of


def random_pipeline(seed: int) -> PipelineProblem:
    """2 to 4 GPUs, 1 to 2 stages on each, there and back or there twice, and 2 to 8 micro-batches."""
    draw = Random(seed)
    there = tuple(range(draw.randint(2, 4)))
    gpu_of = draw.choice([there, there * 2, there + there[::-1]])
    layout = PipelineLayout(gpu_of, draw.randint(2, 8), draw.random() < 0.6)

    def costs(count: int) -> tuple[int, ...]:
        return tuple(draw.randint(1, 30) for _ in range(count))

    count = layout.stages
    weights = costs(count) if layout.split else ()
    return PipelineProblem(PipelineCosts(costs(count), costs(count), weights, costs(count - 1)), layout)


def random_orders(pipeline: PipelineProblem, seed: int) -> Orders:
    """Orders that a random list schedule leaves: micro-batches are permuted as well."""
    draw, layout = Random(seed), pipeline.layout
    orders: Orders = [[] for _ in range(layout.gpus)]
    batches, stages = range(layout.micro_batches), range(layout.stages)
    left = [Pass(kind, b, s) for kind in pipeline.kinds for b in batches for s in stages]
    done = set[Pass]()
    while left:
        ready = [each for each in left if _before(each, layout) <= done]
        chosen = draw.choice(ready)
        left.remove(chosen)
        done.add(chosen)
        orders[layout.gpu_of[chosen.stage]].append(chosen)
    return orders


def _before(it: Pass, layout: PipelineLayout) -> set[Pass]:
    """What a pass waits for."""
    if it.kind == "F":
        return {Pass("F", it.micro_batch, it.stage - 1)} if it.stage else set()
    if it.kind == "W":
        return {Pass("B", it.micro_batch, it.stage)}
    last = it.stage == layout.stages - 1
    return {Pass("F", it.micro_batch, it.stage)} | (set() if last else {Pass("B", it.micro_batch, it.stage + 1)})


def planned(pipeline: PipelineProblem, orders: Orders) -> tuple[Instance, Plan]:
    """The instance on the finite horizon, and each pass as early as the orders allow."""
    instance = pipeline_instance(pipeline, "pipeline", "finite")
    found = timetable_of_orders(pipeline, instance, orders)
    objective = objective_of(compile_instance(instance), (), None, found.task_graph_jobs)
    sha256 = instance_sha256(instance)
    return instance, Plan.of_jobs("pipeline", sha256, "feasible", objective, 0, None, found.task_graph_jobs)

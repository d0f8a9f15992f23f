"""The bundled set ``shop``: job shops and flow shops, a slot a machine (specification: task-graph-jobs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.task_graph import Barrier, Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob


@dataclass(frozen=True, slots=True)
class Shop:
    """The recipe of a shop.

    `orders, machines`: orders, each of which goes once to every machine. `flow`: whether they do so in the same
    sequence; otherwise each in one of its own. `barrier, objective`: barrier of the job, and objective of the instance;
    ``period`` makes the horizon cyclic. `jobs`: number of jobs with so many orders each, which share the machines;
    their weights are 1, 2, and so on.
    """

    orders: int
    machines: int
    flow: bool = False
    barrier: Barrier = "none"
    objective: Objective = "makespan"
    jobs: int = 1


def shop_instance(recipe: Shop, name: str) -> Instance:
    """Build the instance of a recipe; times and sequences are drawn by its name, the same every time."""
    draw = Random(f"shop/{name}")
    cluster = Cluster((Server("shop", "v100", recipe.machines, 10**9, 10**9),))
    jobs = tuple(TaskGraphJob(f"j{k}", _shape(recipe, draw), 1, weight=k + 1) for k in range(recipe.jobs))
    horizon: Horizon = "cyclic" if recipe.objective == "period" else "finite"
    return Instance(f"shop-{name}", cluster, {}, jobs, horizon, recipe.objective)


def _shape(recipe: Shop, draw: Random) -> TaskGraph:
    """Draw a shop; operations take 1 to 99 µs, as in the shops of the literature."""
    blocks: list[TaskGraphBlock] = []
    edges: list[Edge] = []
    for order in range(recipe.orders):
        machines = list(range(recipe.machines))
        if not recipe.flow:
            draw.shuffle(machines)
        names = [f"{order}.{machine}" for machine in machines]
        blocks += [
            TaskGraphBlock(name, (f"m{machine}",), {"v100": draw.randint(1, 99)})
            for name, machine in zip(names, machines, strict=True)
        ]
        edges += [Edge(before, after) for before, after in pairwise(names)]
    slots = tuple(Slot(f"m{machine}") for machine in range(recipe.machines))
    return TaskGraph(slots, tuple(blocks), (), tuple(edges), recipe.barrier)


SHOPS: Mapping[str, Shop] = {
    "job-6x4": Shop(6, 4),
    "job-10x5": Shop(10, 5),
    "job-10x10": Shop(10, 10),
    "flow-8x3": Shop(8, 3, flow=True),
    "cyclic-5x4": Shop(5, 4, barrier="slot", objective="period"),
    "shared-4x3": Shop(4, 3, jobs=2, objective="weighted_completion"),
}
"""Recipes of the set by name."""

"""`cpsat` on jobs with a task graph finds the optimum that `tests.task_graph_oracle` finds without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    MemoryInterval,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.task_graph import Barrier
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_task_graph_instance
from tests.solvers.test_cpsat_task_graphs import instance_of, one_server, pipeline

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum

SEEDS: dict[tuple[Horizon, Objective], tuple[int, ...]] = {
    ("finite", "makespan"): (3, 15, 40, 57, 71, 89, 117, 134, 141, 154, 172),
    ("finite", "weighted_completion"): (3, 6, 11, 13, 16, 26, 29, 34),
    ("cyclic", "period"): (3, 14, 17, 19, 21, 48, 96, 132, 160, 163, 177, 182, 194),
}


def two_batches(memory: int, barrier: bool) -> Instance:
    """Forward passes of 1 and backward passes of 2 on one GPU, each pair with one byte held in between."""
    blocks = tuple(TaskGraphBlock(f"{kind}{b}", ("s",), {"v": 1 + (kind == "B")}) for b in range(2) for kind in "FB")
    edges = (*(Edge(f"F{b}", f"B{b}") for b in range(2)), Edge("F0", "F1"), Edge("F1", "B0"))
    holds = tuple(MemoryInterval(f"F{b}", f"B{b}", 1) for b in range(2))
    shape = TaskGraph((Slot("s"),), blocks, (), edges, "slot" if barrier else "none", holds)
    cluster = Cluster((Server("s", "v", 1, memory, 10**6),))
    return Instance("two", cluster, {}, (TaskGraphJob("j", shape, 1),), "cyclic", "period")


@pytest.mark.parametrize("barrier", [True, False])
def test_the_oracle_on_known_answers(barrier: bool) -> None:
    # All of the work is 6; both batches are held at once, for F1 comes before B0.
    assert task_graph_optimum(two_batches(2, barrier)) == 6
    assert task_graph_optimum(two_batches(1, barrier)) is None
    finite = replace(two_batches(2, barrier), horizon="finite", objective="weighted_completion")
    job = replace(finite.task_graph_jobs[0], iterations=2, release_us=3, weight=5)
    assert task_graph_optimum(replace(finite, jobs=(job,))) == 5 * (3 + 12)


@pytest.mark.parametrize(
    ("horizon", "objective", "seed"), [(*kind, seed) for kind, seeds in SEEDS.items() for seed in seeds]
)
def test_the_optimum(horizon: Horizon, objective: Objective, seed: int) -> None:
    drawn = random_task_graph_instance(seed, horizon, objective)
    # Half of them with so little memory that it often matters.
    memory = 4 + seed % 10 if seed % 2 else 100
    servers = tuple(replace(server, gpu_memory=memory) for server in drawn.cluster.servers)
    instance = replace(drawn, cluster=replace(drawn.cluster, servers=servers), jobs=drawn.task_graph_jobs)
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.objective == task_graph_optimum(instance)


@pytest.mark.parametrize("barrier", ["none", "slot"])
def test_the_optimum_where_memory_holds_a_pipeline_back(barrier: Barrier) -> None:
    job = TaskGraphJob("pipe", pipeline(2, 2, 1, barrier), 1)
    found = []
    for memory in (1, 2):
        instance = instance_of(one_server(2, memory), job, horizon="cyclic")
        found.append(task_graph_optimum(instance))
        assert solve(instance, "cpsat", Options(threads=1, work_limit=20.0)).objective == found[-1]
    tight, ample = found
    assert tight is not None and ample is not None and tight > ample

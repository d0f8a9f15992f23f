"""Phased plans of task-graph jobs: correct, the optimum where that is known, and bounds that expand no iterations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt import Instance, Options
from jigsaw_opt.checking import check
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from jigsaw_opt.problem.compiled.operations import is_long
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan
from jigsaw_opt.solvers.bounds.activities import slot_loads
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_task_graph_instance
from tests.refusals import misuse


def long(seed: int, factor: int, objective: str = "makespan") -> Instance:
    """A random instance whose jobs have so many times as many iterations."""
    found = random_task_graph_instance(seed, "finite", objective)  # type: ignore[arg-type]
    return replace(found, jobs=tuple(replace(job, iterations=factor * job.iterations) for job in found.jobs))


@pytest.mark.parametrize(("seed", "best"), [(2, 91), (3, 87), (4, 70), (8, 59), (12, 84)])
def test_as_good_as_the_best_listed_plan(seed: int, best: int) -> None:
    """`best` is the optimum of plans that list the iterations, as `auto` proves it."""
    asked = long(seed, 7)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    assert result.bound <= best == result.plan.objective


@pytest.mark.slow
def test_a_million_iterations_beside_a_data_parallel_job() -> None:
    asked = long(12, 10**6, "weighted_completion")
    assert is_long(asked, most=10**6)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    kinds = {type(job) for _, _, phase in result.plan.all_phases() for job in phase.jobs}
    assert kinds == {JobPlan, TaskGraphJobPlan}


def test_a_pipeline_runs_beside_the_job_that_memory_keeps_it_apart_from() -> None:
    """On two servers of two GPUs, `wide` takes all and the others one server each; no two fit on the same GPU."""
    shape = TaskGraph(
        (Slot("a", 60), Slot("b", 60)),
        (TaskGraphBlock("f", ("a",), {"v": 20}), TaskGraphBlock("g", ("b",), {"v": 20})),
        (TaskGraphTransfer("t", 10, "a", "b"),),
        (Edge("f", "t"), Edge("t", "g")),
    )
    jobs = (
        Job("narrow", "net", 2, 4000),
        Job("wide", "net", 4, 1000),
        TaskGraphJob("pipe", shape, 1500),
    )
    cluster = Cluster(tuple(Server(name, "v", 2, 100, 10**9) for name in "xy"), (), (Link("xy", ("x", "y"), 10**9, 0),))
    net = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 60),))
    asked = Instance("beside", cluster, {"net": net}, jobs, "finite", "makespan")
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    both, alone = 40_000, 10_000
    assert result.objective is not None and result.objective <= 1.05 * (both + alone)
    assert solve(asked, "phased", Options(threads=1)).objective == result.objective


def test_a_phased_plan_with_shapes_is_not_gone_on_from() -> None:
    asked = long(2, 7)
    plan = solve(asked, "phased", Options(threads=1)).plan
    assert plan is not None
    with misuse("unsupported start", naming=["task graph"]):
        solve(replace(asked, name="other"), "phased", Options(threads=1), start=plan, fix=Fix())


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_many_iterations_are_not_longer_than_they_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = long(seed, 30)
    for job in asked.task_graph_jobs:
        exact = TaskGraphData(compile_task_graph(job), asked.cluster).longest_us()
        monkeypatch.setattr(slot_loads, "_MOST_LISTED", 10 * compile_task_graph(job).size)
        repeated = TaskGraphData(compile_task_graph(job), asked.cluster)
        assert repeated.listed == 10 < job.iterations
        assert 0.9 * exact <= repeated.longest_us() <= exact
        monkeypatch.undo()

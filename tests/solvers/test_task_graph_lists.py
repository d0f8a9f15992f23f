"""`greedy` on jobs with a task graph: list schedules, placements, and memory that never locks them up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.stages import PipelineProblem, pipeline_instance
from jigsaw_opt.problem import Edge, Instance, MemoryInterval, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.activities.flat import one_iteration
from jigsaw_opt.solvers.activities.held_memory import HeldMemory, serial_order
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.ranks import Rule
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import misuse
from tests.solvers.test_cpsat_task_graphs import ft06, instance_of, one_server, pipeline

HORIZONS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


def greedy(instance: Instance, seed: int = 0) -> Result:
    return solve(instance, "greedy", Options(seed=seed))


def task_graphs_only(seed: int, horizon: Horizon = "finite", objective: Objective = "makespan") -> Instance:
    instance = random_task_graph_instance(seed, horizon, objective)
    return replace(instance, jobs=instance.task_graph_jobs)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_a_plan_is_found_wherever_there_is_one(seed: int, horizon: Horizon, objective: Objective) -> None:
    pytest.importorskip("ortools")
    instance = task_graphs_only(seed, horizon, objective)
    best = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    found = greedy(instance)
    assert (found.plan is None) == (best.status is Status.INFEASIBLE)
    if found.objective is not None and best.objective is not None:
        assert found.bound <= best.objective <= found.objective


def test_a_job_shop_comes_near_its_optimum() -> None:
    result = greedy(instance_of(one_server(6), ft06()))
    assert result.objective is not None
    assert 55 <= result.objective <= 60


@pytest.mark.parametrize(
    # A pipeline that flushes takes (stages - 1 + batches) times a forward and a backward pass with memory for as many
    # batches as stages, and with memory for one batch the whole chain of each.
    ("stages", "batches", "memory", "period"),
    [(2, 5, 2, 18), (3, 3, 3, 15), (4, 8, 4, 33), (4, 8, 8, 33), (3, 3, 1, 27)],
)
def test_a_pipeline_that_flushes_becomes_1f1b(stages: int, batches: int, memory: int, period: int) -> None:
    job = TaskGraphJob("pipe", pipeline(stages, batches, 1, "slot"), 1)
    assert greedy(instance_of(one_server(stages, memory), job, horizon="cyclic")).objective == period


@pytest.mark.parametrize(("ahead", "memory", "idle"), [(1.0, 12, 3), (2.0, 21, 0)])
def test_limits_ahead_make_zero_bubble_schedules(ahead: float, memory: int, idle: int) -> None:
    # ZB-H1 leaves (p - 1)(F + B - W) idle with the memory of 1F1B, and ZB-H2 nothing with nearly twice as much.
    layout = PipelineLayout((0, 1, 2, 3), 8, True)
    costs = PipelineCosts((5,) * 4, (5,) * 4, (5,) * 4, activation_bytes=(3,) * 4, weight_bytes=(1,) * 4)
    operations = compile_instance(pipeline_instance(PipelineProblem(costs, layout, memory), "pipe", "cyclic"))
    jobs = PlacedJobs(operations, next(placements(operations, 0)))
    value, timetable = jobs.schedule(Rule("ahead", 0, ahead), 10**9)
    assert timetable is not None
    assert value == 5 * (3 * 8 + idle)


@pytest.mark.slow
def test_memory_never_locks_a_schedule_up() -> None:
    # Each forward pass fits by itself; started as they come, those of the first stage would leave no room to the
    # last stage's batch on the same GPUs.
    first = TaskGraphJob("a", pipeline(2, 4, 6), 2)
    turned = replace(first, name="b", shape=replace(first.shape, slots=first.shape.slots[::-1]))
    for memory in (6, 11, 12, 13):
        result = greedy(instance_of(one_server(2, memory), first, turned))
        assert result.status in (Status.FEASIBLE, Status.OPTIMAL)


def test_an_order_that_holds_the_least_is_found_by_taking_choices_back() -> None:
    # `a` is begun first by its tail, but what it holds leaves no room for `c`, which `b` and then `d` wait for.
    names = ("a", "b", "c", "d")
    blocks = tuple(TaskGraphBlock(name, ("s",), {"v": 1}) for name in names)
    holds = (MemoryInterval("a", "d", 3), MemoryInterval("b", "b", 1), MemoryInterval("c", "c", 5))
    shape = TaskGraph((Slot("s"),), blocks, (), (Edge("c", "b"), Edge("b", "d"), Edge("a", "d")), holds=holds)
    flat = one_iteration(compile_task_graph(TaskGraphJob("j", shape, 1)), [5])
    order = serial_order(flat)
    assert order is not None
    assert order.index(2) < order.index(0)
    assert serial_order(one_iteration(compile_task_graph(TaskGraphJob("j", shape, 1)), [4])) is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_rank_every_activity_is_started_and_memory_suffices(seed: int) -> None:
    operations = compile_instance(task_graphs_only(seed))
    for placement in list(placements(operations, seed))[:3]:
        jobs = PlacedJobs(operations, placement)
        size = len(jobs.flat.duration_us)
        for step in range(size):
            starts, order = jobs.scheduler.run(sorted(range(size), key=lambda a: (a * 7 + step) % size))
            assert sorted(order) == list(range(size))
            memory = HeldMemory(jobs.flat)
            for activity in order:
                assert memory.fits(activity)
                memory.do(activity)
            assert all(starts[a.after] >= starts[a.before] + a.length_us for a in jobs.flat.arcs)


def test_the_same_seed_gives_the_same_plan() -> None:
    for seed in range(4):
        instance = task_graphs_only(seed, "cyclic", "period")
        first, second = greedy(instance, 3).plan, greedy(instance, 3).plan
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert first.jobs == second.jobs


@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_most_mixed_instances_get_a_plan(horizon: Horizon, objective: Objective) -> None:
    results = [greedy(random_mixed_instance(seed, horizon, objective)) for seed in range(12)]
    # Each plan is checked. What is refuted at once has a job that is too large for the cluster by itself.
    left_open = [result for result in results if result.status is Status.UNKNOWN]
    assert len(left_open) <= 3
    assert sum(result.plan is not None for result in results) >= 6
    for result in results:
        assert result.objective is None or result.bound <= result.objective


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_rank_workers_keep_what_they_wait_for(seed: int) -> None:
    operations = compile_instance(random_mixed_instance(seed))
    for placement in list(placements(operations, seed))[:3]:
        jobs = PlacedJobs(operations, placement)
        size = len(jobs.flat.duration_us)
        assert size == operations.blocks + operations.transfers
        for step in range(size):
            starts, order = jobs.scheduler.run(sorted(range(size), key=lambda a: (a * 7 + step) % size))
            assert sorted(order) == list(range(size))
            assert all(starts[a.after] >= starts[a.before] + a.length_us for a in jobs.flat.arcs)
            for resource in range(jobs.scheduler.width):
                used = [a for a in range(size) if resource in jobs.flat.resources[a]]
                spans = sorted((starts[a], starts[a] + jobs.flat.duration_us[a]) for a in used)
                assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_other_solvers_refuse_shapes_by_name() -> None:
    if find("ilp").unavailable() is not None:
        pytest.skip("its engine is not installed")
    instance = next(
        each for each in map(random_task_graph_instance, range(50)) if len(each.task_graph_jobs) < len(each.jobs)
    )
    with misuse("unsupported instance", naming=["'ilp'", "task graph"]):
        solve(instance, "ilp")

"""Task-graph and data-parallel jobs together: `cpsat` and `auto` beside `tests.task_graph_oracle`, and every plan."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    MemoryInterval,
    Model,
    Segment,
    Server,
    Slot,
    StaircaseDepth,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.orders.improving import Annealing
from jigsaw_opt.solvers.activities.orders.neighbourhoods import WindowSearch
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.ranks import Rule
from jigsaw_opt.solvers.bounds import lower_bound, stronger_bounds
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import LiveEvent, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.random_task_graphs import random_mixed_instance
from tests.solvers.test_cpsat_task_graphs import one_server, pipeline

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum

HORIZONS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


def solved(instance: Instance, solver: str = "cpsat", workers: int = 1) -> Result:
    return solve(instance, solver, Options(threads=workers, work_limit=20.0))


def tight(seed: int, horizon: Horizon, objective: Objective) -> Instance:
    """A random instance, half of them with so little memory that it often matters."""
    instance = random_mixed_instance(seed, horizon, objective)
    memory = 4 + seed * 7 % 40
    servers = tuple(
        replace(server, gpu_memory=memory if seed % 2 else server.gpu_memory) for server in instance.cluster.servers
    )
    return replace(instance, cluster=replace(instance.cluster, servers=servers))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_the_optimum(horizon: Horizon, objective: Objective, seed: int) -> None:
    instance = tight(seed, horizon, objective)
    result = solved(instance)
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.stopped_by is StoppedBy.PROOF
    # The plan has been checked; what is left to be shown is that there is none below.
    assert task_graph_optimum(instance, result.objective) == result.objective


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_auto_decides_small_instances(seed: int, horizon: Horizon, objective: Objective, workers: int) -> None:
    instance = tight(seed, horizon, objective)
    found, best = solved(instance, "auto", workers), solved(instance)
    assert (found.status, found.objective) == (best.status, best.objective)


def larger(horizon: Horizon) -> Instance:
    """Two pipelines and two jobs of workers at levels, on two servers."""
    segments = tuple(Segment(f"g{k}", {"v": 2}, {"v": 3}, 1 + k, 1) for k in range(3))
    pipe = TaskGraphJob("pipe", pipeline(2, 4, 1, "slot"), 2)
    free = Job("free", "m", 3, 2, depth=StaircaseDepth())
    cluster = Cluster(
        tuple(Server(f"s{k}", "v", 2, 60, 10**6) for k in range(2)), (), (Link("wire", ("s0", "s1"), 10**6, 1),)
    )
    jobs = (pipe, free, replace(pipe, name="other", iterations=1), replace(free, name="more", workers=2, iterations=3))
    return Instance(
        "larger", cluster, {"m": Model(segments)}, jobs, horizon, "period" if horizon == "cyclic" else "makespan"
    )


@pytest.mark.slow
@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_auto_is_never_worse_than_greedy_and_the_same_for_a_seed(horizon: Horizon) -> None:
    options = Options(threads=1, work_limit=0.1)
    first, second, greedy = (solve(larger(horizon), name, options) for name in ("auto", "auto", "greedy"))
    assert first.plan is not None and second.plan is not None and greedy.plan is not None
    assert first.plan.objective <= greedy.plan.objective
    assert first.plan.jobs == second.plan.jobs
    assert greedy.bound <= first.bound <= first.plan.objective


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_a_poor_plan_is_improved_and_every_plan_is_right(seed: int, horizon: Horizon, objective: Objective) -> None:
    operations = compile_instance(random_mixed_instance(seed, horizon, objective))
    placement = next(placements(operations, 0), None)
    if placement is None:
        assert solved(operations.instance).status is Status.INFEASIBLE
        return
    events: list[LiveEvent] = []
    solve_state = SolveState("windows", operations, Options(threads=1, work_limit=5.0), events.append)
    jobs = PlacedJobs(operations, placement)
    _, timetable = jobs.schedule(Rule("in_order", 0), 10**9)
    assert timetable is not None
    solve_state.offer(timetable)
    before = solve_state.objective
    for search in (Annealing(solve_state, operations), WindowSearch(solve_state, operations)):
        search.step(0.3, math.inf)
    assert before is not None and solve_state.objective is not None
    assert solve_state.bound <= solve_state.objective <= before
    assert all(event.plan is not None for event in events[1:])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_no_bound_is_above_the_optimum(seed: int, horizon: Horizon, objective: Objective) -> None:
    instance = random_mixed_instance(seed, horizon, objective)
    best = solved(instance).objective
    if best is None:
        return
    operations = compile_instance(instance)
    first = lower_bound(operations)
    assert 0 < first.value <= best
    assert all(first.value < bound.value <= best for bound in stronger_bounds(operations, first.value, work=1.0))


def test_bounds_of_both_kinds_add_up_where_every_end_counts() -> None:
    model = Model((Segment("g", {"v": 3}, {"v": 4}, 0, 0),))
    alone = TaskGraphJob("s", TaskGraph((Slot("a"),), (TaskGraphBlock("b", ("a",), {"v": 5}),)), 2, weight=3)
    instance = Instance(
        "two", one_server(2), {"m": model}, (alone, Job("d", "m", 1, 2)), "finite", "weighted_completion"
    )
    assert lower_bound(compile_instance(instance)).value == 3 * 2 * 5 + 2 * 7
    result = solved(instance, "greedy")
    assert (result.status, result.objective) == (Status.OPTIMAL, 44)
    # On one GPU the makespan is all of the work.
    together = replace(instance, cluster=one_server(1), objective="makespan")
    assert lower_bound(compile_instance(together)).value == 10 + 14


def test_memory_of_workers_counts_beside_holds_at_every_moment() -> None:
    # State of 4 and activations of 3, and a hold of 5 while `f` and `b` run, all on one GPU.
    model = Model((Segment("g", {"v": 2}, {"v": 2}, 1, 3),), state_factor=4)
    blocks = tuple(TaskGraphBlock(name, ("a",), {"v": 1}) for name in "fb")
    shape = TaskGraph((Slot("a", 1),), blocks, (), (Edge("f", "b"),), holds=(MemoryInterval("f", "b", 5),))
    jobs = (TaskGraphJob("s", shape, 1), Job("d", "m", 1, 1))
    # In time, the job with 6 bytes and the worker with 7 may follow one another.
    least: dict[Horizon, int] = {"finite": 7, "cyclic": 13}
    for horizon, enough in least.items():
        objective: Objective = "period" if horizon == "cyclic" else "makespan"
        for memory, status in ((enough, Status.OPTIMAL), (enough - 1, Status.INFEASIBLE)):
            instance = Instance("memory", one_server(1, memory), {"m": model}, jobs, horizon, objective)
            result = solved(instance, "auto")
            assert result.status is status
            assert result.objective == (6 if status is Status.OPTIMAL else None)
        # That a job does not fit alone is certain before any search.
        refused = solved(instance, "greedy")
        assert refused.status is (Status.INFEASIBLE if horizon == "finite" else Status.UNKNOWN)
        assert refused.plan is None

"""`auto` on jobs with a task graph: never worse than `greedy`, as good as `cpsat` on small ones, one for a seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jigsaw_opt.instances.task_graph_sets import Shop, shop_instance
from jigsaw_opt.problem import Instance, TaskGraphJob
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.orders.improving import Annealing
from jigsaw_opt.solvers.activities.orders.neighbourhoods import WindowSearch
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.ranks import Rule
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.result import LiveEvent, Status
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.random_task_graphs import random_task_graph_instance
from tests.solvers.test_cpsat_task_graphs import instance_of, one_server, pipeline

pytest.importorskip("ortools")
HORIZONS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


def task_graphs_only(seed: int, horizon: Horizon = "finite", objective: Objective = "makespan") -> Instance:
    instance = random_task_graph_instance(seed, horizon, objective)
    return replace(instance, jobs=instance.task_graph_jobs)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_small_instances_are_decided(seed: int, horizon: Horizon, objective: Objective, workers: int) -> None:
    instance = task_graphs_only(seed, horizon, objective)
    found = solve(instance, "auto", Options(threads=workers, work_limit=20.0))
    best = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    assert (found.status, found.objective) == (best.status, best.objective)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_it_is_never_worse_than_greedy_and_the_same_for_a_seed(horizon: Horizon) -> None:
    job = TaskGraphJob("pipe", pipeline(3, 4, 1, "slot"), 2)
    instance = instance_of(one_server(4, 2), job, replace(job, name="other", iterations=1), horizon=horizon)
    options = Options(threads=1, work_limit=0.05)
    first, second = (solve(instance, "auto", options) for _ in range(2))
    greedy = solve(instance, "greedy", options)
    assert first.objective is not None and greedy.objective is not None
    assert first.objective <= greedy.objective
    assert first.plan is not None and second.plan is not None
    assert first.plan.jobs == second.plan.jobs


@pytest.mark.slow
def test_moves_of_task_graph_jobs_are_chosen_and_left_out_as_others_are() -> None:
    instance = shop_instance(Shop(6, 5, jobs=3, objective="weighted_completion"), "moves")
    options = Options(threads=1, work_limit=0.5)
    made = {move.name: move for move in solve(instance, "search", options).moves}
    assert list(made) == ["opening", "anneal_activities", "reorder_window"]
    assert sum(move.improvement for move in made.values()) > 0
    params = SearchParams(without=("anneal_activities",))
    left = solve(instance, "search", replace(options, params=params)).moves
    assert [move.name for move in left] == ["opening", "reorder_window"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_a_poor_plan_is_improved_and_every_plan_is_right(seed: int, horizon: Horizon, objective: Objective) -> None:
    operations = compile_instance(task_graphs_only(seed, horizon, objective))
    placement = next(placements(operations, 0), None)
    if placement is None:
        assert solve(operations.instance, "cpsat", Options(work_limit=5.0)).status is Status.INFEASIBLE
        return
    events: list[LiveEvent] = []
    solve_state = SolveState("windows", operations, Options(threads=1, work_limit=5.0), events.append)
    jobs = PlacedJobs(operations, placement)
    _, timetable = jobs.schedule(Rule("in_order", 0), 10**9)
    assert timetable is not None
    solve_state.offer(timetable)
    before = solve_state.objective
    searches = Annealing(solve_state, operations), WindowSearch(solve_state, operations, stream=1)
    for search in searches:
        search.step(0.5, math.inf)
    assert before is not None and solve_state.objective is not None
    assert all(search.spent > 0 for search in searches)
    assert solve_state.bound <= solve_state.objective <= before
    # Asked for, each plan is checked.
    assert all(event.plan is not None for event in events[1:])

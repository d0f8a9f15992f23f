"""The portfolio: proofs, limits, and what it shares between search, bounds and the exact model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.instances import load
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Model, Operations, Segment, Server, compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.bounds import Bound, lower_bound, stronger_bounds
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.portfolio.auto import AUTO
from jigsaw_opt.solvers.portfolio.portfolio import PORTFOLIO
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.search.side_searches import SideSearches
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance
from tests.refusals import carries

pytest.importorskip("ortools")

TINY = tuple(f"tiny/{number:03}" for number in (1, 3, 7, 9, 11, 14, 21, 26, 30, 33, 41, 52))


def run(instance: Instance, workers: int = 1, **options: Any) -> Result:
    """The portfolio's result; `solve` has passed its plan to the checker."""
    return solve(instance, "portfolio", Options(**{"threads": workers, "work_limit": 1.0, **options}))


@pytest.mark.parametrize("name", TINY)
def test_proves_tiny_instances_as_the_exact_solver_does(name: str) -> None:
    instance = load(name)
    exact = solve(instance, "cpsat", Options(threads=1, work_limit=1.0))
    assert exact.status is Status.OPTIMAL
    for workers in (1, 2):
        result = run(instance, workers)
        assert (result.status, result.stopped_by) == (Status.OPTIMAL, StoppedBy.PROOF)
        assert result.objective == result.bound == exact.objective
        assert result.bound_reason


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_agrees_with_brute_force(horizon: Horizon, objective: Objective, workers: int) -> None:
    for seed in range(8):
        instance = random_instance(seed, horizon, objective, operations=6)
        best, result = optimum(instance), run(instance, workers)
        assert result.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        assert result.objective == best


def test_the_reason_of_the_bound_names_what_proved_it() -> None:
    # The first bound falls short of both optima: one is met by a stronger bound, the other by the exact model.
    assert carries(run(load("tiny/033")).bound_reason, "work", "memory", "every placement")
    assert carries(run(load("tiny/041")).bound_reason, "search", "portfolio")


@pytest.mark.parametrize(
    ("threads", "fits", "time_limit", "grown"),
    [
        *((2, False, None, [1, 1]), (2, True, None, [1]), (2, True, 1e6, [1, 1])),
        *((4, False, None, [3, 3]), (4, True, None, [2]), (4, True, 1e6, [2, 3])),
    ],
)
def test_the_exact_model_takes_up_to_half_of_the_cores_from_other_searches_until_it_has_had_its_share(
    threads: int, fits: bool, time_limit: float | None, grown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    monkeypatch.setattr(SideSearches, "grow", lambda workers, count: counts.append(count))
    monkeypatch.setattr(cpsat_search, "fits", lambda solve_state, operations: fits)
    result = run(load("server/oversubscribed"), threads, work_limit=0.02, time_limit=time_limit)
    assert counts == grown
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.TIME)


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_same_seed_and_work_with_one_worker_give_the_same_plan(horizon: Horizon, objective: Objective) -> None:
    instance = generate("server", 5, objective=objective)
    assert instance.horizon == horizon
    runs = [run(instance, work_limit=0.1, seed=3) for _ in range(2)]
    assert runs[0].plan is not None and runs[1].plan is not None
    assert runs[0].plan.jobs == runs[1].plan.jobs
    assert [event[1:] for event in runs[0].trajectory] == [event[1:] for event in runs[1].trajectory]


def crowd(objective: Objective = "makespan", jobs: int = 3) -> Instance:
    """Jobs of which two never fit onto one GPU, and two GPUs."""
    model = Model((Segment("g", {"v": 1}, {"v": 1}, 20, 0),), state_factor=1)
    crowded = tuple(Job(f"j{k}", "m", 1, 1) for k in range(jobs))
    cluster = Cluster((Server("s", "v", 2, 30, 10**6),))
    return Instance("crowd", cluster, {"m": model}, crowded, "cyclic" if objective == "period" else "finite", objective)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("objective", "least"), [("makespan", 4), ("weighted_completion", 8)])
def test_jobs_that_take_turns_in_memory_are_no_conflict(objective: Objective, least: int, workers: int) -> None:
    result = run(crowd(objective), workers)
    assert result.status is not Status.INFEASIBLE and result.bound <= least
    assert result.objective is None or result.objective >= least


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("objective", ["period"])
def test_without_a_plan_it_proves_so_and_names_the_conflict(objective: Objective, workers: int) -> None:
    result = run(crowd(objective), workers)
    assert (result.status, result.stopped_by) == (Status.INFEASIBLE, StoppedBy.PROOF)
    assert result.plan is None
    assert set(result.conflicts[0].jobs) == {"j0", "j1", "j2"}
    assert run(crowd(objective, jobs=2), workers).status is Status.OPTIMAL


@pytest.mark.parametrize("workers", [1, 2])
def test_a_depth_that_no_levels_reach_ends_without_a_plan(workers: int) -> None:
    deep = replace(crowd(), jobs=(Job("a", "m", 1, 1, depth=FreeDepth(1, 2)),))
    options = Options(threads=workers, work_limit=0.5)
    result = PORTFOLIO.run(SolveState("portfolio", compile_instance(deep), options, lambda event: None))
    assert (result.status, result.stopped_by) == (Status.INFEASIBLE, StoppedBy.PROOF)


def test_one_thread_has_a_plan_before_it_proves_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def stronger(operations: Operations, known: int, *limits: object) -> Iterator[Bound]:
        objectives.append(events[-1].objective)
        return iter(())

    events: list[Event] = []
    objectives: list[int | None] = []
    monkeypatch.setattr("jigsaw_opt.solvers.bound_tightening.stronger_bounds", stronger)
    instance = generate("server", 2)
    result = solve(instance, "portfolio", Options(threads=1, work_limit=0.05), on_event=events.append)
    assert next(event.objective for event in events if event.objective is not None) == objectives[0]
    assert result.objective is not None and objectives[0] is not None and result.objective <= objectives[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_cancelled_before_it_begins_it_has_its_first_plan_and_the_instant_bound(workers: int) -> None:
    options = Options(threads=workers)
    options.cancel.set()
    instance = load("server/weighted")
    result = solve(instance, "portfolio", options)
    assert result.stopped_by is StoppedBy.INTERRUPT and result.status is Status.FEASIBLE
    assert result.bound == lower_bound(compile_instance(instance)).value


@pytest.mark.parametrize("workers", [1, 2])
def test_cancelled_while_it_runs_it_keeps_its_plan_and_leaves_no_thread(workers: int) -> None:
    options, threads = Options(threads=workers), threading.active_count()

    def cancel_at_first_plan(event: Event) -> None:
        if event.objective is not None:
            options.cancel.set()

    result = solve(
        generate("server", 2, objective="weighted_completion"), "portfolio", options, on_event=cancel_at_first_plan
    )
    assert result.stopped_by is StoppedBy.INTERRUPT
    assert result.status is Status.FEASIBLE
    assert threading.active_count() == threads


@pytest.mark.parametrize("workers", [1, 2])
def test_the_stop_rules_hold_for_all_parts(workers: int) -> None:
    instance = generate("server", 2, objective="weighted_completion")
    limited = solve(instance, "portfolio", Options(threads=workers, time_limit=0.3))
    assert limited.stopped_by is StoppedBy.TIME
    assert run(instance, workers, gap=0.9).stopped_by is StoppedBy.GAP
    assert run(instance, workers, target=10**12).stopped_by is StoppedBy.TARGET


@pytest.mark.slow
def test_is_no_worse_than_the_search_and_the_bound_is_no_weaker() -> None:
    instance = load("server/fast")
    alone, together = solve(instance, "search", Options(threads=1, work_limit=0.1)), run(instance, work_limit=0.3)
    assert alone.objective is not None and together.objective is not None
    assert together.objective <= alone.objective
    assert together.bound >= alone.bound


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_where_the_model_does_not_fit_there_is_a_plan_all_the_same(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 10)
    monkeypatch.setattr(cpsat_search, "build_model", None)
    result = run(generate("server", 2, objective="weighted_completion"), workers, work_limit=0.1)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.TIME)
    assert result.plan is not None


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_bounds_come_to_an_end_where_there_is_no_plan(objective: Objective) -> None:
    operations = compile_instance(crowd(objective))
    values = [bound.value for bound in stronger_bounds(operations, 1)]
    assert values == sorted(values)
    assert all(value <= serial_limit(operations) for value in values)


@pytest.mark.parametrize(("limit", "is_first"), [(0.9, True), (30.0, False)])
def test_within_a_second_greedy_comes_first(monkeypatch: pytest.MonkeyPatch, limit: float, is_first: bool) -> None:
    instance, known = load("tiny/000"), list[int | None]()

    def run(_: object, solve_state: SolveState) -> Result:
        known.append(solve_state.objective)
        return solve_state.conclude(lambda: None)

    monkeypatch.setattr(type(PORTFOLIO), "run", run)
    AUTO.run(SolveState("auto", compile_instance(instance), Options(time_limit=limit), lambda event: None))
    assert (known[0] is not None) == is_first

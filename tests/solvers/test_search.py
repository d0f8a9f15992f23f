"""The anytime search: correct plans, limits that hold, the same plan for the same seed, near the optimum."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances import load
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import DriverParams, OpeningParams, SearchParams
from jigsaw_opt.solvers.placement import assignment
from jigsaw_opt.solvers.placement.layout import Layout, demands
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.search import SEARCH
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.moves import names
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance

pytest.importorskip("ortools")


def searched(instance: Instance, work: float, seed: int = 0) -> Result:
    """The result within deterministic seconds; `solve` has passed its plan to the checker."""
    return solve(instance, "search", Options(threads=1, work_limit=work, seed=seed))


def values_of_placements(operations: Operations) -> list[int]:
    """Objectives of the list schedules of the heuristic's placements, in their order."""
    asked = demands(operations)
    assert asked is not None
    evaluator, count = Evaluator(operations, Layout(operations)), len(operations.jobs)
    return [
        evaluator.evaluate(assignments, [1.0] * count, [0] * count).value
        for assignments in placements(operations, asked)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_is_near_the_optimum_and_finds_what_is_feasible(horizon: Horizon, objective: Objective) -> None:
    reached = least = 0
    for seed in range(20):
        instance = random_instance(seed, horizon, objective, operations=6)
        best, result = optimum(instance), searched(instance, 0.05)
        if best is None:
            assert result.plan is None
            continue
        assert result.objective is not None
        assert result.bound <= best <= result.objective
        reached, least = reached + result.objective, least + best
    assert reached <= 1.01 * least


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_plans_of_random_instances_are_correct(horizon: Horizon, objective: Objective) -> None:
    found = 0
    for seed in range(40):
        result = searched(random_instance(seed, horizon, objective, operations=16), 0.01, seed)
        if result.plan is not None:
            found += 1
            assert result.status is (Status.OPTIMAL if result.objective == result.bound else Status.FEASIBLE)
    assert found >= 25


@pytest.mark.slow
def test_plans_with_extreme_numbers_are_correct() -> None:
    found = sum(searched(extreme_instance(seed), 0.01).plan is not None for seed in range(12))
    assert found >= 6


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion", "period"])
def test_is_better_than_the_placements_that_it_begins_with(objective: Objective) -> None:
    better = 0
    for seed in (0, 6):
        instance = generate("server", seed, objective=objective)
        first = values_of_placements(compile_instance(instance))
        result = searched(instance, 0.3)
        assert result.objective is not None
        assert result.objective <= min(first)
        better += result.objective < min(first)
    assert better > 0


def test_without_any_work_the_first_placement_stays() -> None:
    instance = generate("server", 2)
    assert searched(instance, 0.0).objective == values_of_placements(compile_instance(instance))[0]


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_same_seed_and_work_give_the_same_plan(horizon: Horizon, objective: Objective) -> None:
    instance = generate("server", 5, objective=objective)
    assert instance.horizon == horizon
    runs = [searched(instance, 0.06, seed=7) for _ in range(2)]
    assert runs[0].plan is not None and runs[1].plan is not None
    assert runs[0].plan.jobs == runs[1].plan.jobs
    assert [event[1:] for event in runs[0].trajectory] == [event[1:] for event in runs[1].trajectory]


def test_assignments_that_are_forgotten_make_no_other_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = load("server/tight-memory")
    remembered = searched(instance, 0.06)
    monkeypatch.setattr(assignment, "_MOST_REMEMBERED", 1)
    forgotten = searched(instance, 0.06)
    assert remembered.plan is not None and forgotten.plan is not None
    assert remembered.plan.jobs == forgotten.plan.jobs


@pytest.mark.slow
def test_more_work_is_never_worse() -> None:
    instance = generate("server", 2)
    values = [searched(instance, work).objective for work in (0.0, 0.1, 0.6)]
    assert None not in values
    assert values == sorted(values, key=lambda value: -(value or 0))
    assert values[0] != values[-1]


def test_the_work_limit_ends_the_search() -> None:
    result = searched(load("server/weighted"), 0.05)
    assert result.stopped_by is StoppedBy.TIME
    assert result.status is Status.FEASIBLE
    assert result.versions["ortools"]


def test_the_time_limit_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(looks) / 1000)  # Time passes when somebody looks at the clock.
    result = solve(load("server/weighted"), "search", Options(threads=1, time_limit=1.0))
    assert result.stopped_by is StoppedBy.TIME
    assert result.plan is not None
    assert 1000 <= next(looks) < 1200


def test_a_cancelled_search_keeps_its_first_plan() -> None:
    options = Options(threads=1)
    options.cancel.set()
    result = solve(load("server/weighted"), "search", options)
    assert result.stopped_by is StoppedBy.INTERRUPT
    assert result.plan is not None


def test_it_is_cancelled_while_it_runs() -> None:
    options = Options(threads=1)

    def cancel_at_third_plan(event: Event) -> None:
        plans.append(event.objective)
        if len({*plans} - {None}) > 2:
            options.cancel.set()

    plans: list[int | None] = []
    result = solve(
        generate("server", 2, objective="weighted_completion"), "search", options, on_event=cancel_at_third_plan
    )
    assert result.stopped_by is StoppedBy.INTERRUPT
    assert result.objective == plans[-1]


@pytest.mark.slow
def test_without_limits_it_ends_by_itself(pair: Instance) -> None:
    params = SearchParams(driver=DriverParams(patience=4))
    result = solve(random_instance(5, "finite", "makespan", 8), "search", Options(threads=1, params=params))
    assert result.stopped_by in (StoppedBy.COMPLETED, StoppedBy.PROOF)
    assert result.plan is not None
    assert solve(pair, "search", Options(threads=1)).objective == 1800


def crowd() -> Instance:
    """Three jobs of two thirds of a GPU's memory on two GPUs."""
    model = Model((Segment("g", {"v": 1}, {"v": 1}, 20, 0),), state_factor=1)
    jobs = tuple(Job(f"j{k}", "m", 1, 1) for k in range(3))
    return Instance("crowd", Cluster((Server("s", "v", 2, 30, 10**6),)), {"m": model}, jobs)


def deeper_than_deep() -> Instance:
    model = Model((Segment("g", {"v": 1}, {"v": 1}, 0, 0),))
    job = Job("a", "m", 1, 1, depth=FreeDepth(1, 2))
    return Instance("deep", Cluster((Server("s", "v", 1, 30, 10**6),)), {"m": model}, (job,))


def raw_search(instance: Instance, work: float | None) -> Result:
    """What the search makes of an instance that nobody has looked at before."""
    options = Options(threads=1, work_limit=work)
    return SEARCH.run(SolveState("search", compile_instance(instance), options, lambda event: None))


@pytest.mark.parametrize("work", [None, 0.05])
def test_what_has_no_plan_ends_without_one(work: float | None) -> None:
    result = raw_search(deeper_than_deep(), work)
    assert result.status is Status.UNKNOWN
    assert result.stopped_by is StoppedBy.COMPLETED
    assert result.plan is None


@pytest.mark.parametrize("work", [None, 0.05])
def test_jobs_that_do_not_fit_at_once_follow_one_another(work: float | None) -> None:
    result = raw_search(crowd(), work)
    assert result.objective == 4
    assert result.plan is not None
    assert check(crowd(), result.plan) == ()


@pytest.mark.parametrize("work", [None, 0.05])
def test_jobs_that_fit_nowhere_together_have_no_period(work: float | None) -> None:
    result = raw_search(replace(crowd(), horizon="cyclic", objective="period"), work)
    assert result.status is Status.UNKNOWN
    assert result.stopped_by is (StoppedBy.COMPLETED if work is None else StoppedBy.TIME)
    assert result.plan is None


def test_certain_causes_are_told_before_the_search() -> None:
    assert certain_causes(compile_instance(deeper_than_deep()))
    result = searched(deeper_than_deep(), 0.01)
    assert result.status is Status.INFEASIBLE
    assert result.conflicts


def test_a_slice_of_the_budget_ends_before_the_budget() -> None:
    operations = compile_instance(generate("tiny", 20))
    budget = Budget(SolveState("test", operations, Options(threads=1, work_limit=10.0), lambda event: None), share=0.5)
    budget.spend(1.0)
    with budget.slice(0.1):
        assert not budget.spend(0.4)
        assert budget.spend(0.2)
        assert budget.cut()
        assert budget.reason() is None
    budget.renew()
    assert not budget.over()
    assert not budget.cut()
    assert budget.spend(4.0)
    assert budget.reason() is StoppedBy.TIME


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_is_never_behind_the_heuristic(horizon: Horizon, objective: Objective, seed: int) -> None:
    instance = random_instance(seed, horizon, objective, operations=40)
    greedy = solve(instance, "greedy", Options(threads=1, seed=seed))

    others = tuple(name for name in names() if name != "heuristic")
    params = SearchParams(without=others, opening=OpeningParams(work=0.0))
    begun = solve(instance, "search", Options(threads=1, seed=seed, params=params))
    assert begun.objective == greedy.objective

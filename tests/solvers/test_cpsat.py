"""The solver `cpsat` on the finite horizon: status, bound, stop rules, determinism."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.solvers.cpsat import CPSAT
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import random_instance

pytest.importorskip("ortools")


def solve(instance: Instance, **options: object) -> Result:
    asked = Options(**{"threads": 1, "work_limit": 20.0, **options})
    return CPSAT.run(SolveState("cpsat", compile_instance(instance), asked, lambda event: None, part=""))


def fitting(servers: int, memory: int, jobs: int) -> Instance:
    """One-worker jobs, each of which holds 40 bytes of state and 20 of activations."""
    model = Model((Segment("all", {"v": 3}, {"v": 4}, 10, 20),))
    cluster = Cluster(tuple(Server(f"s{k}", "v", 1, memory, 10) for k in range(servers)))
    return Instance("memory", cluster, {"net": model}, tuple(Job(f"j{k}", "net", 1, 1) for k in range(jobs)))


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_proves_what_brute_force_finds(objective: str) -> None:
    for seed in range(200, 220):
        instance = random_instance(seed, "finite", objective, operations=7)
        result, best = solve(instance), optimum(instance)
        assert result.objective == best, instance.name
        assert result.stopped_by == StoppedBy.PROOF
        assert result.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        if result.plan is not None:
            assert result.bound == best
            assert check(instance, result.plan) == ()


def test_the_engine_needs_no_first_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    instance = load("server/full")
    events: list[Event] = []
    result = CPSAT.run(
        SolveState("cpsat", compile_instance(instance), Options(threads=1, work_limit=20.0), events.append, part="")
    )
    assert result.plan is not None
    assert check(instance, result.plan) == ()
    assert result.status == Status.OPTIMAL
    assert events[0].objective is None
    assert (events[-1].objective, events[-1].bound) == (result.objective, result.bound)
    assert [event.bound for event in events] == sorted(event.bound for event in events)


@pytest.mark.slow
def test_same_seed_and_one_worker_give_the_same_plan() -> None:
    instance = load("server/oversubscribed")
    runs = [solve(instance, work_limit=0.3, seed=5) for _ in range(2)]
    assert runs[0].plan is not None
    assert runs[1].plan is not None
    assert runs[0].plan.jobs == runs[1].plan.jobs
    assert runs[0].bound == runs[1].bound
    assert runs[0].stopped_by == StoppedBy.TIME


def test_infeasible_names_a_minimal_conflict() -> None:
    crowded = replace(fitting(2, 100, 5), horizon="cyclic", objective="period")
    result = solve(crowded)
    assert result.status == Status.INFEASIBLE
    assert result.stopped_by == StoppedBy.PROOF
    assert result.plan is None
    assert len(result.conflicts) == 1
    named = result.conflicts[0].jobs
    assert solve(replace(crowded, jobs=crowded.jobs[: len(named)])).status == Status.INFEASIBLE
    assert solve(replace(crowded, jobs=crowded.jobs[: len(named) - 1])).status == Status.OPTIMAL


def test_jobs_that_do_not_fit_together_follow_one_another() -> None:
    result = solve(fitting(2, 60, 5))
    assert (result.status, result.objective) == (Status.OPTIMAL, 21)
    alone = solve(fitting(2, 59, 1))
    assert alone.status == Status.INFEASIBLE


def test_stop_rules_keep_the_best_plan() -> None:
    instance = load("server/oversubscribed")
    at_once = solve(instance, time_limit=0.0, work_limit=None)
    assert (at_once.status, at_once.stopped_by) == (Status.FEASIBLE, StoppedBy.TIME)
    assert at_once.objective is not None
    target = solve(instance, target=at_once.objective)
    assert (target.stopped_by, target.objective) == (StoppedBy.TARGET, at_once.objective)
    gap = solve(instance, gap=0.5)
    assert gap.stopped_by == StoppedBy.GAP
    assert gap.gap is not None
    assert gap.gap <= 0.5


def test_cancel_stops_a_search_under_way() -> None:
    instance, cancel = load("server/oversubscribed"), threading.Event()
    timer = threading.Timer(1.0, cancel.set)
    timer.start()
    result = solve(instance, cancel=cancel, work_limit=None)
    timer.join()
    assert result.stopped_by == StoppedBy.INTERRUPT
    assert result.plan is not None
    assert check(instance, result.plan) == ()


def test_times_beyond_the_engine_keep_the_heuristic_plan() -> None:
    slow = 2**53 - 1
    model = Model((Segment("all", {"v": slow}, {"v": slow}, 1, 1),))
    cluster = Cluster((Server("s", "v", 2, 100, 10),))
    jobs = tuple(Job(f"j{k}", "net", 1, 100 + k, weight=2) for k in range(3))
    instance = Instance("slow", cluster, {"net": model}, jobs, "finite", "weighted_completion")
    result = solve(instance)
    assert result.plan is not None
    assert check(instance, result.plan) == ()


def test_objectives_that_floats_cannot_tell_apart_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    times = [2**52 + extra for extra in (3, 1, 4, 0)]
    models = {f"m{time}": Model((Segment("all", {"v": time}, {"v": 0}, 0, 0),)) for time in times}
    jobs = tuple(Job(f"j{time}", f"m{time}", 1, 1) for time in times)
    instance = Instance("long", Cluster((Server("s", "v", 1, 0, 1),)), models, jobs, objective="weighted_completion")
    result = solve(instance)
    assert result.status == Status.OPTIMAL
    assert result.objective == result.bound == sum(k * time for k, time in enumerate(sorted(times, reverse=True), 1))


@pytest.mark.parametrize("seed", [1594, 3697, 9239])
def test_its_presolve_loses_no_solution(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operations = compile_instance(extreme_instance(seed))
    known = greedy_timetable(operations)
    assert known is not None
    monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    result = solve(operations.instance)
    assert result.status == Status.OPTIMAL
    assert result.bound <= objective_of(operations, known.jobs, known.period_us)


def test_states_what_it_needs_and_takes(pair: Instance) -> None:
    assert CPSAT.unavailable() is None
    assert CPSAT.unsupported(pair) is None


def test_strategies_in_turn_are_stopped_at_the_limit_and_not_by_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread that takes all strategies in turn ends long before a limit of its own."""
    limits: list[tuple[bool, float, float]] = []

    def run_engine(solve_state: SolveState, solver: Any, model: object, callback: object, until: float) -> int:
        limits.append((solver.parameters.interleave_search, solver.parameters.max_time_in_seconds, until))
        return 0

    monkeypatch.setattr(cpsat_search.Targets, "bisect", lambda *_: 0.0)
    monkeypatch.setattr(cpsat_search, "run_engine", run_engine)
    for workers in (1, 2):
        solve_state = SolveState(
            "cpsat", compile_instance(fitting(2, 200, 4)), Options(threads=workers, time_limit=1000.0), lambda _: None
        )
        cpsat_search.explore(solve_state, solve_state.operations, workers, math.inf, 500.0)
    assert limits[0][:2] == (True, math.inf) and 400 < limits[0][2] <= 1000
    assert limits[1][0] is False and 400 < limits[1][1] <= 500 and limits[1][2] == math.inf

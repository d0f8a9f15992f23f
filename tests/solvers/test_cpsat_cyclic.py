"""The solver `cpsat` on the cyclic horizon: every period, limits, determinism."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import Instance, Operations, compile_instance
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.cpsat import CPSAT
from jigsaw_opt.solvers.cpsat import model as cpsat_model
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.cpsat import targets as cpsat_targets
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from tests.oracle import optimum
from tests.random_instances import random_instance

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

pytest.importorskip("ortools")

SHORT = 0.05
"""Deterministic seconds in which the crowded instance stays open."""


@pytest.fixture(scope="module")
def crowded() -> Instance:
    """Sixteen jobs on four GPUs."""
    return generate("tiny", 0, objective="period", servers=2, load=600, segments=(3, 4))


def solve(instance: Instance, **options: object) -> Result:
    asked = Options(**{"threads": 1, "work_limit": 20.0, **options})
    return CPSAT.run(SolveState("cpsat", compile_instance(instance), asked, lambda event: None))


def has_period(instance: Instance, period: int) -> bool:
    """Whether the model has a plan of exactly this period, which is at least the bound."""
    from ortools.sat.python import cp_model

    operations, solver = compile_instance(instance), cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 20.0
    model = cpsat_search.build_model(
        SolveState("period", operations, Options(), lambda event: None), operations, period, period
    )
    status = solver.solve(model.proto)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    if status == cp_model.OPTIMAL:
        assert model.plan(solver.value).period_us == period
    return status == cp_model.OPTIMAL


@pytest.mark.parametrize("seed", [14, 24, 38, 39])
def test_the_possible_periods_are_all_from_the_least_one_on(seed: int) -> None:
    instance = random_instance(seed, "cyclic", "period", operations=6)
    best, bound = optimum(instance), lower_bound(compile_instance(instance)).value
    assert best is not None
    assert bound < best
    assert all(has_period(instance, best + more) for more in (0, 1, 2, 7))
    assert not any(has_period(instance, period) for period in range(bound, best))


def test_an_open_search_keeps_a_checked_plan_and_an_honest_bound(crowded: Instance) -> None:
    events: list[Event] = []
    result = CPSAT.run(
        SolveState("cpsat", compile_instance(crowded), Options(threads=1, work_limit=SHORT), events.append)
    )
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.TIME)
    assert result.plan is not None
    assert result.objective is not None
    assert check(crowded, result.plan) == ()
    assert result.bound < result.objective
    assert [event.bound for event in events] == sorted(event.bound for event in events)


def test_the_work_limit_counts_every_question(crowded: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    engine = cpsat_model.engine_for

    def recorded(solve_state: SolveState, operations: Operations, limit: int, work: float) -> cp_model.CpSolver:
        limits.append(work)
        return engine(solve_state, operations, limit, work)

    monkeypatch.setattr(cpsat_search, "engine_for", recorded)
    monkeypatch.setattr(cpsat_targets, "engine_for", recorded)
    solve(crowded, work_limit=SHORT)
    assert limits[0] == pytest.approx(SHORT)
    assert all(later < earlier for earlier, later in pairwise(limits))


def test_same_seed_and_one_worker_give_the_same_plan(crowded: Instance) -> None:
    runs = [solve(crowded, work_limit=SHORT, seed=3) for _ in range(2)]
    assert runs[0].plan is not None
    assert runs[1].plan is not None
    assert runs[0].plan.jobs == runs[1].plan.jobs
    assert runs[0].bound == runs[1].bound


def test_an_instance_too_large_for_the_model_keeps_the_heuristic_plan(
    crowded: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 10)
    result = solve(crowded)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.MODEL_TOO_LARGE)
    assert result.plan is not None
    assert check(crowded, result.plan) == ()

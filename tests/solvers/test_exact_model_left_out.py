"""What a result says of an exact model that was not built, and of one that was."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.solvers.bounds.registry import names
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.ilp import solver as ilp
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import ExactModel, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import random_instance
from tests.refusals import carries

pytest.importorskip("ortools")


def run(instance: Instance, solver: str, **options: object) -> Result:
    return solve(instance, solver, Options(**{"threads": 1, "work_limit": 1.0, **options}))


def test_cpsat_says_what_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 10)
    result = run(load("server/demo"), "cpsat")
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.MODEL_TOO_LARGE)
    count = cpsat_search.interval_count(compile_instance(load("server/demo")))
    assert result.exact_model == ExactModel(False, f"{count:,} optional intervals, and at most 10 are taken")
    assert "not built" in result._repr_html_()


def test_cpsat_says_when_the_time_is_too_short_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "_INTERVALS_PER_SECOND", 0.01)
    result = run(load("server/demo"), "cpsat", time_limit=1000.0)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.MODEL_TOO_LARGE)
    assert result.exact_model is not None and carries(result.exact_model.reason, "build")


def test_cpsat_says_so_of_jobs_with_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_TASK_GRAPH_INTERVALS", 10)
    result = run(load("shop/job-6x4"), "cpsat")
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.MODEL_TOO_LARGE)
    assert result.exact_model is not None and carries(result.exact_model.reason, "10", "taken")


def test_no_plan_and_no_model_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 10)
    monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    result = run(load("server/demo"), "cpsat")
    assert (result.status, result.stopped_by, result.plan) == (Status.UNKNOWN, StoppedBy.MODEL_TOO_LARGE, None)


def test_ilp_says_what_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("highspy")
    pytest.importorskip("pulp")
    monkeypatch.setattr(ilp, "_MOST_SEARCHED", 10)
    result = run(load("server/demo"), "ilp")
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.MODEL_TOO_LARGE)
    assert result.exact_model == ExactModel(False, "more than 10 coefficients, and no more are taken")


def test_a_proof_before_the_model_is_no_lack_of_it(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 0)
    instance = next(
        instance
        for seed in range(100)
        if run(instance := random_instance(seed, "finite", "makespan", operations=4), "greedy").status is Status.OPTIMAL
    )
    result = run(instance, "cpsat")
    assert (result.status, result.stopped_by) == (Status.OPTIMAL, StoppedBy.PROOF)
    assert result.exact_model == ExactModel(False, "the solve ended before its turn came")


@pytest.mark.parametrize("workers", [1, 2])
def test_portfolio_says_whether_the_model_took_part(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without relaxations nothing but the model proves that a plan is optimal, so its turn comes.
    given = {"threads": workers, "work_limit": 0.2, "without_bounds": names()}
    assert run(load("server/demo"), "portfolio", **given).exact_model == ExactModel(True)
    monkeypatch.setattr(cpsat_search, "_MOST_INTERVALS", 10)
    left_out = run(load("server/demo"), "portfolio", **given)
    assert left_out.exact_model is not None and carries(left_out.exact_model.reason, "10", "taken")
    assert left_out.stopped_by is not StoppedBy.MODEL_TOO_LARGE


def test_portfolio_says_that_the_search_has_the_time_of_a_larger_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jigsaw_opt.solvers.cpsat.model.is_small", lambda operations: False)
    result = run(load("server/demo"), "portfolio", work_limit=0.5)
    assert result.exact_model is not None and carries(result.exact_model.reason, "goes", "search")


def test_greedy_has_no_exact_model() -> None:
    assert run(load("server/demo"), "greedy").exact_model is None

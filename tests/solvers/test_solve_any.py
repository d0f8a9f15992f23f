"""One call for short and long jobs: the kind of plan follows from the instance, the options and the time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.solvers import solve as call
from jigsaw_opt.solvers.bounds import Bound, Proof
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import PHASED, either, solve_phased
from jigsaw_opt.solvers.phased.result import phased_result
from jigsaw_opt.solvers.portfolio.auto import Auto
from jigsaw_opt.solvers.registry import ignored
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.stop import no_plan

NET = Model((Segment("l", {"v": 3}, {"v": 4}, 5, 6),))


def one_server(*jobs: Job) -> Instance:
    return Instance("any", Cluster((Server("s", "v", 2, 100, 10**6),)), {"net": NET}, jobs, "finite", "makespan")


def test_short_jobs_get_a_plan_that_lists_all_iterations() -> None:
    result = solve(one_server(Job("a", "net", 1, 3), Job("b", "net", 1, 2)), options=Options(threads=1))
    assert result.solver == "portfolio"
    assert (result.status, result.objective) == (Status.OPTIMAL, 21)


def test_what_comes_before_the_solve_is_part_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = one_server(Job("a", "net", 1, 3))
    done, now = solve(instance, "greedy", Options(threads=1)), iter([100.0, 102.5])
    limits: list[float | None] = []

    def solved(instance: Instance, solver: str, options: Options, *_: object) -> Result:
        limits.append(options.time_limit)
        return done

    monkeypatch.setattr(either, "solve_listed", solved)
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(call, "time", clock)
    monkeypatch.setattr(either, "time", clock)
    assert solve(instance, options=Options(time_limit=10, threads=1)) is done
    assert limits == [7.5]


def test_jobs_that_no_plan_lists_get_a_phased_plan() -> None:
    result = solve(one_server(Job("a", "net", 1, 10**8)), options=Options(threads=1))
    assert result.plan is not None and result.plan.is_phased
    assert (result.status, result.objective) == (Status.OPTIMAL, 7 * 10**8)


def test_optimal_phased_plan_is_all_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(either, "_MANY_OPERATIONS", 0)
    monkeypatch.setattr(either, "solve_listed", None)
    assert solve(one_server(Job("a", "net", 1, 5)), options=Options(threads=1)).solver == "phased"


@pytest.mark.parametrize(("more", "kind"), [(0, "phased"), (2, "portfolio")])
def test_the_better_of_both_is_the_result(more: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phased plan that is said to be one better or one worse than the optimum, and not known to be optimal."""
    asked = one_server(Job("a", "net", 1, 5))
    result = solve_phased(asked, Options(threads=1))
    assert result.plan is not None and result.plan.objective == 35
    plan = replace(result.plan, objective=34 + more)
    told = replace(result, status=Status.FEASIBLE, objective=plan.objective, plan=plan)
    monkeypatch.setattr(either, "_MANY_OPERATIONS", 0)
    monkeypatch.setattr(either, "solve_phased", lambda *_: told)
    found = solve(asked, options=Options(threads=1))
    assert found.solver == kind and found.objective == min(35, 34 + more)


@pytest.mark.parametrize(("rate", "kind"), [(1, "phased"), (10**6, "portfolio")])
def test_no_plan_is_begun_that_cannot_be_listed_in_time(rate: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(either, "_MANY_OPERATIONS", 0)
    monkeypatch.setattr(either, "_OPERATIONS_A_SECOND", rate)
    monkeypatch.setattr(either, "solve_phased", lambda *_: phased_result(Options(), 0.0, Bound(0, Proof())))
    asked = Options(threads=1, time_limit=1.0)
    assert solve(one_server(Job("a", "net", 1, 5)), options=asked).solver == kind


def test_options_that_phased_plans_are_not_made_with_ask_for_a_listed_one() -> None:
    options = Options(threads=1, target=1)
    assert ignored(PHASED, options) == ("target",) and ignored(PHASED, Options(seed=3)) == ()
    with pytest.raises(TooLargeError, match="phased"):
        solve(one_server(Job("a", "net", 1, 10**8)), options=options)


def test_short_jobs_that_two_gpus_hold_only_in_turn_are_listed() -> None:
    jobs = [Job(name, "net", 1, 3) for name in "abc"]
    turns = replace(one_server(*jobs), cluster=Cluster((Server("s", "v", 2, 30, 10**6),)))
    found = solve(turns, options=Options(threads=1))
    assert (found.solver, found.status, found.objective) == ("portfolio", Status.OPTIMAL, 42)


def test_of_short_jobs_a_phased_plan_is_tried_where_no_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(name, "net", 1, 3) for name in "abc"]
    listed: list[float] = []

    def run(solver: Auto, solve_state: SolveState) -> Result:
        return solve_state.result(StoppedBy.TIME)

    monkeypatch.setattr(Auto, "run", run)
    monkeypatch.setattr(SolveState, "end_without_plan", lambda _, seconds: listed.append(seconds))
    found = solve(one_server(*jobs), options=Options(threads=1, time_limit=10.0))
    assert found.solver == "phased" and found.objective == 42
    assert 6.0 < listed[0] <= 7.0


def test_a_solve_without_a_plan_may_end_early() -> None:
    state = SimpleNamespace(objective=None, seconds=3.0)
    assert no_plan(3.0).holds(state) and not no_plan(3.1).holds(state)
    state.objective = 1
    assert not no_plan(3.0).holds(state)

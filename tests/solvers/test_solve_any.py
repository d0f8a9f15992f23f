"""One call for short and long jobs: the kind of plan follows from the instance, the options and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.solvers.bounds.registry import names
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import PHASED
from jigsaw_opt.solvers.phased.timer import PhaseTimer
from jigsaw_opt.solvers.portfolio import auto
from jigsaw_opt.solvers.registry import ignored
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState

NET = Model((Segment("l", {"v": 3}, {"v": 4}, 5, 6),))


def one_server(*jobs: Job) -> Instance:
    return Instance("any", Cluster((Server("s", "v", 2, 100, 10**6),)), {"net": NET}, jobs, "finite", "makespan")


def test_short_jobs_get_a_plan_that_lists_all_iterations() -> None:
    result = solve(one_server(Job("a", "net", 1, 3), Job("b", "net", 1, 2)), options=Options(threads=1))
    assert result.solver == "portfolio"
    assert (result.status, result.objective) == (Status.OPTIMAL, 21)


def test_jobs_that_no_plan_lists_get_a_phased_plan() -> None:
    result = solve(one_server(Job("a", "net", 1, 10**8)), options=Options(threads=1))
    assert result.plan is not None and result.plan.is_phased
    assert (result.status, result.objective) == (Status.OPTIMAL, 7 * 10**8)


def solve_auto(instance: Instance, options: Options) -> Result:
    """The result of `auto` without the check of what tests replace."""
    return auto.AUTO.run(SolveState("auto", compile_instance(instance), options, lambda _: None))


def only_listed(monkeypatch: pytest.MonkeyPatch, listing: Callable[[SolveState], Result]) -> None:
    """Let `auto` list the iterations of a plan by a function."""
    made = SimpleNamespace(name="listing", run=listing)
    monkeypatch.setattr(auto.Auto, "choose", lambda *_: made)


def test_optimal_phased_plan_is_all_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_MANY_OPERATIONS", 0)
    only_listed(monkeypatch, lambda _: pytest.fail("the phased plan is optimal"))
    assert solve_auto(one_server(Job("a", "net", 1, 5)), Options(threads=1)).solver == "phased"


@pytest.mark.parametrize(("more", "kind"), [(-1, "phased"), (1, "portfolio")])
def test_the_better_of_both_is_the_result(more: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phased plan that is said to be one better or one worse than the optimum, and not known to be optimal."""
    operations = compile_instance(one_server(Job("a", "net", 1, 5)))
    listed = next(timetables(operations, 0))
    state = SolveState("auto", operations, Options(threads=1, without_bounds=names()), lambda _: None)
    phased = SimpleNamespace(name="phased", phased=True, moves=True, memory_in_time=True)
    plan = solve(operations.instance, "phased", threads=1).plan
    assert plan is not None and plan.objective == 35

    def run_phased(part: SolveState) -> Result:
        part.offer_phased(replace(plan, objective=35 + more))
        return part.result(StoppedBy.COMPLETED)

    def run_listed(part: SolveState) -> Result:
        part.offer(listed)
        return part.result(StoppedBy.TIME)

    phased.run = run_phased
    for method in (phased, SimpleNamespace(name="portfolio", run=run_listed)):
        state.delegate(method)
    found = state.result(StoppedBy.TIME)
    assert found.solver == kind and found.objective == min(35, 35 + more)
    assert [event.objective for event in found.trajectory] == [None, 35 + more, *([35] if more > 0 else [])]


@pytest.mark.parametrize("limit", ["time_limit", "work_limit"])
@pytest.mark.parametrize(("rate", "listed"), [(1, False), (10**6, True)])
def test_no_plan_is_begun_that_cannot_be_listed_within_the_limit(
    rate: int, listed: bool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[str]()
    monkeypatch.setattr(auto, "_MANY_OPERATIONS", 0)
    monkeypatch.setattr(auto, "_OPERATIONS_A_SECOND", rate)
    # The work of a placement counts also where it finds nothing; that of local search alone would take long.
    monkeypatch.setattr(PhaseTimer, "placed", lambda timer, *_, **__: timer.spend(0.1))

    def listing(solve_state: SolveState) -> Result:
        begun.append("listed")
        return solve_state.result(StoppedBy.COMPLETED)

    only_listed(monkeypatch, listing)
    asked = Options(threads=1, without_bounds=names(), **{limit: 0.5})
    solve_auto(one_server(Job("a", "net", 1, 5), Job("b", "net", 1, 5)), asked)
    assert bool(begun) == listed


def test_options_that_phased_plans_are_not_made_with_ask_for_a_listed_one() -> None:
    options = Options(threads=1, listed=True)
    assert ignored(PHASED, options) == ("listed",) and ignored(PHASED, Options(seed=3, work_limit=1)) == ()
    with pytest.raises(TooLargeError, match="phased"):
        solve(one_server(Job("a", "net", 1, 10**8)), options=options)
    assert solve(one_server(Job("a", "net", 1, 10**8)), threads=1, work_limit=1).solver == "phased"


def test_short_jobs_that_two_gpus_hold_only_in_turn_are_listed() -> None:
    jobs = [Job(name, "net", 1, 3) for name in "abc"]
    turns = replace(one_server(*jobs), cluster=Cluster((Server("s", "v", 2, 30, 10**6),)))
    found = solve(turns, options=Options(threads=1))
    assert (found.solver, found.status, found.objective) == ("portfolio", Status.OPTIMAL, 42)


def test_of_short_jobs_a_phased_plan_is_tried_where_no_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(name, "net", 1, 3) for name in "abc"]
    listed: list[float] = []
    only_listed(monkeypatch, lambda solve_state: solve_state.result(StoppedBy.COMPLETED))
    monkeypatch.setattr(SolveState, "end_without_plan", lambda _, seconds: listed.append(seconds))
    found = solve_auto(one_server(*jobs), Options(threads=1, time_limit=10.0))
    assert found.solver == "phased" and found.objective == 42
    assert 6.0 < listed[0] <= 7.0


def test_a_solve_without_a_plan_may_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = compile_instance(one_server(Job("a", "net", 1, 3)))
    state = SolveState("early", operations, Options(threads=1), lambda event: None)
    monkeypatch.setattr(SolveState, "seconds", 3.0)
    for limit, reason in ((3.1, None), (3.0, StoppedBy.TIME)):
        state.end_without_plan(limit)
        assert state.reason() is reason
    state.objective = 10**9
    assert state.reason() is None

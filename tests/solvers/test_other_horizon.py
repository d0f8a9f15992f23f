"""Finite plans brought over to the cyclic horizon, and the move that searches for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.solvers.greedy.heuristic import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves.other_horizon import OtherHorizon, brought_over, twin
from jigsaw_opt.solvers.solve_state import SolveState

pytest.importorskip("ortools")


def crowded() -> Instance:
    """A crowded cyclic instance of 8 GPUs."""
    return replace(generate("crowded", 2001), horizon="cyclic", objective="period")


def control_of(instance: Instance, params: SearchParams | None = None) -> SolveState:
    return SolveState(
        "test", compile_instance(instance), Options(threads=1, work_limit=0.3, params=params), lambda event: None
    )


def context_of(solve_state: SolveState, taken: list[Candidate]) -> Context:
    asked = demands(solve_state.operations)
    assert asked is not None
    return Context(solve_state, asked, Random(0), Budget(solve_state), taken.append)


def test_a_twin_has_the_same_jobs_on_the_finite_horizon() -> None:
    operations = compile_instance(crowded())
    other = twin(operations)
    assert (other.horizon, other.objective) == ("finite", "makespan")
    assert other.jobs == operations.jobs


def test_a_plan_brought_over_is_correct() -> None:
    instance = crowded()
    solve_state, taken = control_of(instance), list[Candidate]()
    plan = greedy_timetable(twin(solve_state.operations), 0)
    assert plan is not None
    after = brought_over(plan, context_of(solve_state, taken))
    assert after in taken
    for candidate in taken:
        timetable = candidate.timetable
        assert candidate.value == objective_of(solve_state.operations, timetable.jobs, timetable.period_us)
        offered = control_of(instance)
        assert offered.offer(timetable)
        result = offered.result(StoppedBy.COMPLETED)
        assert result.plan is not None
        assert check(instance, result.plan) == ()


def test_a_finite_plan_becomes_a_period_of_at_most_its_makespan() -> None:
    solve_state, taken = control_of(crowded()), list[Candidate]()
    other = twin(solve_state.operations)
    plan = greedy_timetable(other, 0)
    assert plan is not None
    makespan = objective_of(other, plan.jobs)
    after = brought_over(plan, context_of(solve_state, taken))
    assert taken == [after]
    assert after.value <= makespan


def test_a_finite_plan_is_not_lost_where_its_move_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    solve_state, taken = control_of(crowded()), list[Candidate]()
    move, plan = OtherHorizon(context_of(solve_state, taken)), greedy_timetable(twin(solve_state.operations), 0)
    assert plan is not None

    def cut_off(budget: Budget) -> bool:
        assert move.solve_state.offer(plan)
        raise OutOfTimeError("the time limit was reached")

    monkeypatch.setattr(Driver, "open", lambda driver, budget: cut_off(budget))
    with pytest.raises(OutOfTimeError):
        move.run(None, Budget(solve_state))
    assert [candidate.value for candidate in taken] == [objective_of(move.solve_state.operations, plan.jobs)]


@pytest.mark.slow
def test_the_move_finds_plans_by_itself() -> None:
    solve_state = control_of(crowded())
    assert Driver(solve_state, only=OtherHorizon).run() in (StoppedBy.TIME, StoppedBy.PROOF)
    assert list(solve_state.moves) == ["other_horizon"]
    assert solve_state.moves["other_horizon"].successes > 0
    assert solve_state.best is not None and solve_state.best.period_us is not None


def test_it_does_not_apply_on_the_finite_horizon() -> None:
    instance = replace(crowded(), horizon="finite", objective="makespan")
    assert not OtherHorizon.applies(context_of(control_of(instance), []))


@pytest.mark.slow
def test_where_it_is_left_out_all_others_are_made() -> None:
    solve_state = control_of(crowded(), SearchParams(without=("other_horizon",)))
    assert Driver(solve_state, only=OtherHorizon).run() in (StoppedBy.TIME, StoppedBy.PROOF)
    assert solve_state.best is not None
    assert "opening" in solve_state.moves and "other_horizon" not in solve_state.moves

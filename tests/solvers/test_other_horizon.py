"""Finite plans brought over to the cyclic horizon, and the move that searches for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, cut
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.assignments.layout import demands
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.heuristic import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.moves.other_horizon import OtherHorizon, brought_over, twin

pytest.importorskip("ortools")


def crowded() -> Instance:
    """A crowded cyclic instance of 8 GPUs."""
    return replace(generate("crowded", 2001), horizon="cyclic", objective="period")


def control_of(instance: Instance, params: SearchParams | None = None) -> Control:
    return Control("test", cut(instance), Options(threads=1, work_limit=0.3, params=params), lambda event: None)


def context_of(control: Control, taken: list[Candidate]) -> Context:
    asked = demands(control.operations)
    assert asked is not None
    return Context(control, asked, Random(0), Budget(control), taken.append)


def test_a_twin_has_the_same_jobs_on_the_finite_horizon() -> None:
    operations = cut(crowded())
    other = twin(operations)
    assert (other.horizon, other.objective) == ("finite", "makespan")
    assert other.jobs == operations.jobs


def test_a_plan_brought_over_is_correct() -> None:
    instance = crowded()
    control, taken = control_of(instance), list[Candidate]()
    plan = greedy_timetable(twin(control.operations), 0)
    assert plan is not None
    after = brought_over(plan, context_of(control, taken))
    assert after in taken
    for candidate in taken:
        timetable = candidate.timetable
        assert candidate.value == objective_of(control.operations, timetable.jobs, timetable.period_us)
        offered = control_of(instance)
        assert offered.offer(timetable)
        result = offered.result(StoppedBy.COMPLETED)
        assert result.plan is not None
        assert check(instance, result.plan) == ()


def test_a_finite_plan_becomes_a_period_of_at_most_its_makespan() -> None:
    control, taken = control_of(crowded()), list[Candidate]()
    other = twin(control.operations)
    plan = greedy_timetable(other, 0)
    assert plan is not None
    makespan = objective_of(other, plan.jobs)
    after = brought_over(plan, context_of(control, taken))
    assert taken == [after]
    assert after.value <= makespan


def test_a_finite_plan_is_not_lost_where_its_move_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    control, taken = control_of(crowded()), list[Candidate]()
    move, plan = OtherHorizon(context_of(control, taken)), greedy_timetable(twin(control.operations), 0)
    assert plan is not None

    def cut_off(budget: Budget) -> bool:
        assert move.control.offer(plan)
        raise OutOfTimeError("the time limit was reached")

    monkeypatch.setattr(Driver, "open", lambda driver, budget: cut_off(budget))
    with pytest.raises(OutOfTimeError):
        move.run(None, Budget(control))
    assert [candidate.value for candidate in taken] == [objective_of(move.control.operations, plan.jobs)]


@pytest.mark.slow
def test_the_move_finds_plans_by_itself() -> None:
    control = control_of(crowded())
    assert Driver(control, only=OtherHorizon).run() in (StoppedBy.TIME, StoppedBy.PROOF)
    assert list(control.moves) == ["other_horizon"]
    assert control.moves["other_horizon"].successes > 0
    assert control.best is not None and control.best.period_us is not None


def test_it_does_not_apply_on_the_finite_horizon() -> None:
    instance = replace(crowded(), horizon="finite", objective="makespan")
    assert not OtherHorizon.applies(context_of(control_of(instance), []))


@pytest.mark.slow
def test_where_it_is_left_out_all_others_are_made() -> None:
    control = control_of(crowded(), SearchParams(without=("other_horizon",)))
    assert Driver(control, only=OtherHorizon).run() in (StoppedBy.TIME, StoppedBy.PROOF)
    assert control.best is not None
    assert "opening" in control.moves and "other_horizon" not in control.moves

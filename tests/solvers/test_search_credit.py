"""Whom the search credits with a better plan: the move that found it, and never one that ran meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Thread
from typing import ClassVar

import pytest

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.params import DriverParams, RelocationParams
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Accepted, MoveRecord, Result, StoppedBy
from jigsaw_opt.solvers.search import Budget, Candidate, Context, Move, SearchParams, driver
from jigsaw_opt.solvers.search.cyclic.period_search import GroupInsertion
from jigsaw_opt.solvers.search.driver import AdaptiveSelection
from jigsaw_opt.solvers.search.moves import names
from jigsaw_opt.solvers.search.moves.restart import AnnealSequence
from jigsaw_opt.solvers.solve_state import SolveState

pytest.importorskip("ortools")

Run = Callable[[Context], Candidate | None]


class Search:
    """A search with one move, on a solve state that knows the worst of some plans.

    Parameters
    ----------
    monkeypatch
        Leaves out the opening, and writes down what the selection is told.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without = SearchParams(without=names(), driver=DriverParams(patience=1))
        self.solve_state = SolveState(
            "test", compile_instance(generate("server", 9)), Options(threads=1, params=without), lambda event: None
        )
        self.context = context_of(self.solve_state)
        self.plans = plans_of(self.context)[:4]
        assert len(self.plans) == 4
        self.values = [candidate.value for candidate in self.plans]
        self.solve_state.offer(self.plans[0].timetable)
        self.rewards: list[bool] = []
        monkeypatch.setattr(driver, "open_search", lambda context, begun: None)
        monkeypatch.setattr(AdaptiveSelection, "reward", lambda self_, name, gain, work: self.rewards.append(gain > 0))

    def elsewhere(self, plan: Timetable) -> None:
        """Another thread finds a plan."""
        thread = Thread(target=self.solve_state.offer, args=(plan,))
        thread.start()
        thread.join()

    def run(self, move: Run) -> Result:
        """What comes of it where the move does the same each time."""
        return self.solve_state.conclude(driver.Driver(self.solve_state, moves=(move_of(move),)).run)

    @property
    def record(self) -> MoveRecord:
        """What the move was credited with."""
        return self.solve_state.moves["scripted"]


def context_of(solve_state: SolveState) -> Context:
    asked = demands(solve_state.operations)
    assert asked is not None

    def propose(candidate: Candidate) -> None:
        solve_state.offer(candidate.timetable)

    return Context(solve_state, asked, Random(0), Budget(solve_state), propose)


def plans_of(context: Context) -> list[Candidate]:
    """Plans of different objectives, each better than the one before."""
    found = (context.candidate(plan) for plan in timetables(context.operations) if plan is not None)
    return sorted({candidate.value: candidate for candidate in found}.values(), key=lambda each: -each.value)


def move_of(do: Run) -> type[Move]:
    class Scripted:
        name: ClassVar[str] = "scripted"

        def __init__(self, context: Context) -> None:
            self.context = context

        @classmethod
        def applies(cls, context: Context) -> bool:
            return True

        def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
            return do(self.context)

    return Scripted


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    return Search(monkeypatch)


def test_what_another_thread_finds_is_not_credited_to_the_move_under_way(search: Search) -> None:
    def run(context: Context) -> Candidate | None:
        search.elsewhere(search.plans[2].timetable)
        return context.incumbent

    result = search.run(run)
    assert result.objective == search.values[2]
    assert (search.record.calls, search.record.successes, search.record.improvement) == (1, 0, 0)
    assert search.rewards == [False]


def test_a_move_is_credited_with_its_own_improvement_alone(search: Search) -> None:
    def run(context: Context) -> Candidate | None:
        search.elsewhere(search.plans[1].timetable)
        search.elsewhere(search.plans[1].timetable)
        return search.plans[3]

    result = search.run(run)
    assert result.objective == search.values[3]
    assert (search.record.calls, search.record.successes) == (2, 1)
    assert search.record.improvement == search.values[1] - search.values[3]
    assert search.rewards == [True, False]


def test_what_is_proposed_on_the_way_counts_and_is_seen_at_once(search: Search) -> None:
    seen: list[int | None] = []

    def run(context: Context) -> Candidate | None:
        for candidate in search.plans[1:3]:
            context.propose(candidate)
            seen.append(search.solve_state.objective)
        search.elsewhere(search.plans[3].timetable)
        return search.plans[2]

    search.run(run)
    assert seen[:2] == search.values[1:3]
    assert (search.record.successes, search.record.improvement) == (1, search.values[0] - search.values[2])
    assert search.rewards == [True, False]


@pytest.mark.parametrize("error", [OutOfTimeError, KeyboardInterrupt])
def test_a_plan_proposed_half_way_is_kept_and_credited_where_the_move_does_not_return(
    search: Search, error: type[BaseException]
) -> None:
    def run(context: Context) -> Candidate | None:
        context.propose(search.plans[1])
        raise error

    if error is OutOfTimeError:
        result = search.run(run)
        assert (result.stopped_by, result.objective) == (StoppedBy.TIME, search.values[1])
    else:
        with pytest.raises(error):
            search.run(run)
    assert search.solve_state.objective == search.values[1]
    assert search.record.calls == search.record.successes == 1
    assert search.record.improvement == search.values[0] - search.values[1]


def test_a_plan_that_is_not_better_is_not_accepted_nor_even_made(search: Search) -> None:
    def never() -> Timetable:
        raise AssertionError

    result = search.run(lambda context: Candidate(search.values[0], never))
    assert result.objective == search.values[0]
    assert search.record.successes == 0
    assert search.rewards == [False]


def test_a_move_that_boasts_is_not_believed(search: Search) -> None:
    search.elsewhere(search.plans[1].timetable)
    result = search.run(lambda context: Candidate(search.values[3], lambda: search.plans[0].timetable))
    assert result.objective == search.values[1]
    assert (search.record.successes, search.record.improvement) == (0, 0)


def test_the_control_says_by_how_much_a_plan_is_better(search: Search) -> None:
    solve_state = SolveState("test", search.solve_state.operations, Options(threads=1), lambda event: None)
    assert solve_state.incumbent is None
    answers = [solve_state.offer(search.plans[number].timetable) for number in (1, 0, 3, 3)]
    assert answers == [Accepted(0), None, Accepted(search.values[1] - search.values[3]), None]
    assert solve_state.incumbent == (search.values[3], search.plans[3].timetable)


def test_an_insertion_in_vain_takes_longer_next_time_whatever_another_thread_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations = compile_instance(generate("server", 6))
    solve_state = SolveState("test", operations, Options(threads=1, work_limit=100.0), lambda event: None)
    context = context_of(solve_state)
    plans = plans_of(context)
    move, spent = GroupInsertion(context), []

    def in_vain(self: GroupInsertion) -> None:
        solve_state.offer(plans[min(1, len(spent))].timetable)
        began = context.budget.work
        while not context.budget.spend(0.01):
            pass
        spent.append(context.budget.work - began)

    monkeypatch.setattr(GroupInsertion, "by_groups", in_vain)
    for _ in range(3):
        assert move.run(context.incumbent, context.budget) is None
    assert plans[1].value == solve_state.objective > solve_state.bound
    assert [work / spent[0] for work in spent] == pytest.approx([1.0, 1.5, 2.25], rel=0.01)


def test_another_sequence_of_the_best_plan_leaves_its_jobs_where_they_are() -> None:
    operations = compile_instance(generate("server", 6, objective="period", releases=False))
    params = SearchParams(relocation=RelocationParams(work=0.01))
    solve_state = SolveState("test", operations, Options(threads=1, params=params), lambda event: None)
    context = context_of(solve_state)
    worst = plans_of(context)[0]
    solve_state.offer(worst.timetable)
    found = AnnealSequence(context).run(context.incumbent, context.budget)
    assert found is not None
    assert found.value < worst.value
    assert [job.gpus for job in found.timetable.jobs] == [job.gpus for job in worst.timetable.jobs]

"""Searches beside a solve, in processes or on Ray: what they find counts, and what becomes of them costs nothing."""

from __future__ import annotations

import logging
import os
import signal
from importlib.util import find_spec
from threading import Event
from typing import Any

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search import side_searches
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.search.side_searches import SideSearches
from jigsaw_opt.solvers.search.side_worker import SearchNews, SearchTask, SearchWorker
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.system.companions import LocalCompanion, Maker
from jigsaw_opt.system.ray_cluster import RayCompanion, cores, joined
from tests.processes import wait_for
from tests.refusals import misuse

pytest.importorskip("ortools")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_searches, "_START_SECONDS", 0.0)


def state_of(name: str = "server/oversubscribed", **options: Any) -> SolveState:
    given = Options(**{"threads": 1, "work_limit": 0.02, **options})
    return SolveState("search", compile_instance(load(name)), given, lambda event: None)


def begun() -> Event:
    event = Event()
    event.set()
    return event


def test_plans_and_records_of_moves_come_from_every_process_and_jobs_that_are_held_stay() -> None:
    state, held = state_of(), {0: [7], 1: [5, 6]}
    with SideSearches(state, begun(), held=held) as workers:
        workers.grow(2)
        wait_for(lambda: {move.name: move.calls for move in state.moves.values()}.get("opening") == 2)
        workers.wait()
    assert state.incumbent is not None and state.proven.value <= state.incumbent[0]
    assert [job.gpus for job in state.incumbent[1].jobs[:2]] == [("s1/3",), ("s1/1", "s1/2")]


def test_a_process_learns_of_plans_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of()
    asked = []

    class Listened(LocalCompanion):
        def ask(self, name: str, *arguments: Any) -> Any:
            asked.append((name, *arguments))
            return super().ask(name, *arguments)

    monkeypatch.setattr(side_searches, "LocalCompanion", Listened)
    solved = SolveState("search", state.operations, Options(threads=1, work_limit=0.1), lambda event: None)
    with SideSearches(solved, begun()) as workers:
        workers.grow(1)
        wait_for(lambda: solved.incumbent is not None)
    assert solved.best is not None
    state.offer(solved.best)
    with SideSearches(state, begun()) as workers:
        asked.clear()
        workers.grow(1)
        wait_for(lambda: bool(asked))
        state.raise_bound(state.proven.value + 1)
        wait_for(lambda: any(news.bound is not None for _, *_, news in asked))
    assert asked[0][0] == "begin" and asked[0][-1].best == solved.incumbent


def test_a_worker_tells_no_plan_that_it_was_told() -> None:
    state = state_of(work_limit=0.1)
    Driver(state).run()
    assert state.incumbent is not None
    known, worker = state.incumbent, SearchWorker()
    bound, options = state.proven._replace(deadlines=None), Options(threads=1, work_limit=0)
    task = SearchTask("search", state.operations, options, "", (), bound, stream=1, only=None, held={})
    worker.begin(task, SearchNews(known))
    wait_for(lambda: worker.exchange(SearchNews()).ended)
    assert worker.exchange(SearchNews()).best is None


def test_a_search_that_has_a_plan_of_another_one_makes_few_list_schedules_first() -> None:
    work = []
    for told in (False, True):
        state = state_of(work_limit=None)
        if told:
            state.offer(next(timetables(state.operations, 0)))
        driver, budget = Driver(state, stream=1), Budget(state)
        assert driver.open(budget)
        assert driver.context.best_list is not None
        work.append(budget.work)
    assert 0 < work[1] < work[0]


def test_a_search_that_does_not_answer_at_the_end_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(LocalCompanion):
        def ask(self, name: str, *arguments: Any) -> Any:
            if name == "exchange" and workers.searching:
                os.kill(self.number, signal.SIGSTOP)
                stopped.set()
            return super().ask(name, *arguments)

    state, stopped = state_of(work_limit=None), Event()
    with caplog.at_level(logging.WARNING), SideSearches(state, begun()) as workers:
        workers.add(1, Silent)
        wait_for(stopped.is_set)
    assert "does not answer" in caplog.text


def test_a_solve_goes_on_without_a_process_that_was_killed(caplog: pytest.LogCaptureFixture) -> None:
    made = []

    def start(make: Maker) -> LocalCompanion:
        made.append(LocalCompanion(make))
        if len(made) == 1:
            os.kill(made[0].number, signal.SIGKILL)
        return made[-1]

    state = state_of()
    with caplog.at_level(logging.WARNING), SideSearches(state, begun()) as workers:
        workers.add(2, start)
        wait_for(lambda: bool(state.moves))
    assert state.best is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "SIGKILL" in caplog.text


def test_what_a_listener_raises_at_the_plan_of_a_process_ends_the_block() -> None:
    def refuse(event: Any) -> None:
        if event.objective is not None:
            raise ZeroDivisionError

    state = SolveState("search", compile_instance(load("tiny/000")), Options(threads=1, work_limit=0.01), refuse)
    with pytest.raises(ZeroDivisionError), SideSearches(state, begun()) as workers:
        workers.grow(1)
        wait_for(lambda: workers.failed)


def test_no_process_begins_for_a_solve_that_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(make: Maker) -> LocalCompanion:
        raise AssertionError("not wanted")

    monkeypatch.setattr(side_searches, "_START_SECONDS", 1e9)
    with SideSearches(state_of(), begun()) as workers:
        workers.add(1, start)
    monkeypatch.setattr(side_searches, "_START_SECONDS", 0.0)
    with SideSearches(state_of(time_limit=0.5), begun()) as workers:  # nothing to begin for
        workers.add(1, start)


pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra ray)")
STORE_BYTES = 80_000_000


@pytest.mark.slow
def test_searches_on_a_cluster_find_plans_and_one_that_is_lost_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.cluster_utils import Cluster

    made: list[RayCompanion] = []

    def start(make: Maker) -> RayCompanion:
        made.append(RayCompanion(make))
        return made[-1]

    monkeypatch.setattr(side_searches, "_START_SECONDS", 0.0)
    operations = compile_instance(load("server/oversubscribed"))
    state = SolveState("search", operations, Options(threads=1, work_limit=1e6), lambda event: None)
    begun, node = Event(), {"object_store_memory": STORE_BYTES}
    begun.set()
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=2, **node)
        with joined(cluster.address), SideSearches(state, begun) as others, caplog.at_level(logging.WARNING):
            assert cores() == 3
            others.add(3, start)
            wait_for(lambda: (record := state.moves.get("opening")) is not None and record.calls == 3)
            made[0].end()
            wait_for(lambda: "is lost" in caplog.text)
            assert others.searching and state.best is not None
            # Of the two that are left, at least one is there.
            cluster.remove_node(second, allow_graceful=False)
            wait_for(lambda: caplog.text.count("is lost") >= 2)
            assert state.reason() is None and not others.failed
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_a_cluster_that_is_not_there_is_refused_before_anything_is_solved(address: str) -> None:
    with misuse("failed address"):
        solve(load("tiny/000"), ray=address)


def test_a_solver_that_does_not_search_refuses_a_cluster() -> None:
    with misuse("unknown-option ray"):
        solve(load("tiny/000"), "greedy", ray="auto")

"""The comparison with peers: what needs none of their packages."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from attempt import Attempt
from comparison import Run, Verdict, race, seconds_to, summary
from launch import Order, judged, launch
from list_scheduling import list_timetable, priorities
from methods import OURS
from order_search import OrderedInsertion, first_order
from run_one import stated_plan

from jigsaw_opt.checking import check
from jigsaw_opt.documents import encode_plan
from jigsaw_opt.documents.job_shops import read_jsplib
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from tests.random_instances import GOALS, random_instance

Trajectory = tuple[tuple[float, int], ...]
PLANLESS = (Verdict.NO_PLAN, Verdict.WRONG, Verdict.CRASHED)


def listed(instance: Instance, order: list[int]) -> Attempt:
    """An attempt that has been offered the timetable of one list."""
    attempt = Attempt(compile_instance(instance), time_limit=1.0)
    timetable = list_timetable(attempt.operations, order)
    if timetable is not None:
        attempt.offer(timetable)
    return attempt


def run(method: str, verdict: Verdict = Verdict.PLAN, trajectory: Trajectory = (), **more: int) -> Run:
    objective = trajectory[-1][1] if trajectory else None
    return Run("pair", "hash", method, 0, 10.0, 1, verdict, objective, trajectory=trajectory, **more)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal[1])
def test_plans_of_list_scheduling_are_correct(goal: tuple[Horizon, Objective]) -> None:
    planned = 0
    for seed in range(20):
        instance = random_instance(seed, *goal, operations=20)
        operations = compile_instance(instance)
        for order, one_by_one in product(priorities(operations), (False, True)):
            assert sorted(order) == list(range(len(instance.jobs)))
            attempt, timetable = Attempt(operations, time_limit=1.0), list_timetable(operations, order, one_by_one)
            if timetable is not None:
                attempt.offer(timetable)
                plan = stated_plan(attempt, "list")
                assert plan is not None and check(instance, plan) == (), instance.name
                planned += 1
    assert planned >= 60


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal[1])
def test_plans_of_ordered_insertion_are_correct_and_what_orders_share_is_kept(goal: tuple[Horizon, Objective]) -> None:
    planned = 0
    for seed in range(25):
        instance = random_instance(seed, *goal, operations=20)
        operations = compile_instance(instance)
        insertion, order = OrderedInsertion(operations), first_order(operations)
        for tried in (order, [*order[:-2], *order[:-3:-1]], order[::-1], order):
            value = insertion.insert(tried)
            assert value == OrderedInsertion(operations).insert(tried)
            if len(insertion.done) == len(tried):
                attempt = Attempt(operations, time_limit=1.0)
                attempt.offer(insertion.timetable())
                plan = stated_plan(attempt, "order-search")
                assert plan is not None and plan.objective == value
                assert check(instance, plan) == (), instance.name
                planned += 1
    assert planned >= 50


def test_seconds_to_a_target() -> None:
    trajectory = ((0.5, 30), (1.0, 20), (4.0, 10))
    assert [seconds_to(trajectory, target) for target in (35, 30, 20, 15, 9, None)] == [0.5, 0.5, 1.0, 4.0, None, 0.5]
    assert seconds_to((), None) is None


@pytest.mark.parametrize(
    ("our", "verdict", "peer", "found"),
    [
        (((0.5, 30), (2.0, 18)), Verdict.PLAN, ((1.0, 40), (8.0, 20)), (False, 8.0, 2.0)),
        (((0.5, 30),), Verdict.PLAN, ((5.0, 20),), (True, 5.0, 10.0)),
        *((((0.5, 30), (2.0, 18)), each, (), (False, 10.0, 0.5)) for each in PLANLESS),
    ],
    ids=["ours", "theirs", *PLANLESS],
)
def test_a_race_goes_to_the_final_objective_of_the_peer(
    our: Trajectory, verdict: Verdict, peer: Trajectory, found: tuple[bool, float, float]
) -> None:
    """A peer without a plan counts its whole limit, and so do we against a better one."""
    result = race(run("auto", trajectory=our), run("peer", verdict, peer))
    assert result is not None
    assert (result.worse, result.peer_seconds, result.our_seconds) == found
    assert result.ratio == found[1] / found[2]


def test_a_bound_above_a_plan_is_a_contradiction() -> None:
    plan, other = ((1.0, 30),), ((1.0, 40),)
    pairs = [
        (run("auto", trajectory=plan, bound=30), run("peer", trajectory=other, bound=30)),
        (run("auto", trajectory=plan, bound=30), run("peer", Verdict.NO_PLAN, bound=31)),
        (run("auto", trajectory=other, bound=31), run("peer", trajectory=plan)),
    ]
    assert [result.contradiction for pair in pairs if (result := race(*pair)) is not None] == [False, True, True]


def test_summary_is_a_geometric_mean_over_what_the_peer_takes() -> None:
    ours = run("auto", trajectory=((1.0, 20),))
    peers = [
        run("peer", trajectory=((2.0, 20),)),
        run("peer", trajectory=((8.0, 19),)),
        run("peer", Verdict.CRASHED),
        run("peer", Verdict.NOT_TAKEN),
    ]
    it = summary([(ours, peer) for peer in peers])
    assert (it.runs, it.planless, it.worse, it.contradictions) == (3, 1, 1, 0)
    assert it.ratio == pytest.approx((2.0 * 0.8 * 10.0) ** (1 / 3))
    assert it.ratio_of_plans == pytest.approx((2.0 * 0.8) ** 0.5)
    assert summary([(ours, peers[-1])]).ratio is None


def test_a_crash_is_told(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = launch(Order(pair, "list", 0, 1.0, 1))
    assert (found.verdict, found.objective, found.note) == (Verdict.CRASHED, None, "exit code 1")


def test_an_attempt_that_does_not_end_is_stopped(
    pair: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nsleep 60\n")
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    monkeypatch.setattr("launch.GRACE_SECONDS", 0.1)
    found = launch(Order(pair, "list", 0, 0.1, 1))
    assert (found.verdict, found.note) == (Verdict.NO_PLAN, "did not end, stopped by force")


def test_an_attempt_in_a_process_of_its_own(pair: Instance) -> None:
    found = launch(Order(pair, "greedy", 0, 5.0, 1))
    assert (found.verdict, found.objective, found.trajectory[-1][1]) == (Verdict.PLAN, 1800, 1800)


@pytest.mark.parametrize("method", [OURS, "plain-cpsat"])
def test_job_shops_are_taken_as_jsplib_states_them(method: str) -> None:
    found = launch(Order(read_jsplib("2 2\n0 3 1 2\n1 4 0 1\n", "shop"), method, 0, 5.0, 1))
    assert (found.verdict, found.objective, found.bound) == (Verdict.PLAN, 6, 6)


def test_methods_of_data_parallel_jobs_take_no_job_shop() -> None:
    found = launch(Order(read_jsplib("1 1\n0 3\n", "shop"), "list", 0, 5.0, 1))
    assert (found.verdict, found.note) == (Verdict.NOT_TAKEN, "jobs with a task graph")


def test_a_method_that_does_not_take_the_instance(pair: Instance) -> None:
    found = launch(Order(generate("tiny", 4), "plain-cpsat", 0, 5.0, 1))
    assert (found.verdict, found.note) == (Verdict.NOT_TAKEN, "cyclic horizon")


def test_a_wrong_plan_does_not_count(tmp_path: Path, pair: Instance) -> None:
    attempt = listed(pair, [0, 1])
    good = stated_plan(attempt, "list")
    assert good is not None
    assert attempt.objective is not None
    order = Order(pair, "list", 0, 1.0, 1)
    answer = {"bound": None, "seconds": 1.0, "trajectory": [[1.0, attempt.objective]], "note": "done"}
    wrong = encode_plan(replace(good, objective=good.objective - 1))
    for document, verdict, objective in (
        (wrong, Verdict.WRONG, None),
        (wrong[:-9], Verdict.WRONG, None),
        (encode_plan(good), Verdict.PLAN, good.objective),
    ):
        (tmp_path / "plan.json").write_bytes(document)
        found = judged(order, tmp_path, answer)
        assert (found.verdict, found.objective) == (verdict, objective)

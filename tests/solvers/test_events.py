"""Events carry checked plans when they are asked for, and a solve can be read as an iterator and left at any time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt import (
    Event,
    Instance,
    Options,
    Plan,
    Result,
    Solving,
    Status,
    StoppedBy,
    check,
    solve,
    solving,
)
from jigsaw_opt.errors import WrongPlanError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.solve_state import SolveState, state
from tests.refusals import misuse

pytest.importorskip("ortools")
LEFT = """
import jigsaw_opt as jo
from tests.solvers.test_events import Waits
events = jo.solving(jo.instances.load("tiny/000"), {solver})
while next(events).objective is None:
    pass
"""
"""A program that ends in the middle of a solve without a limit."""


class Waits:
    """Offers the heuristic's plan, then waits until it is cancelled."""

    name = "waits"
    display_name = "a solver of a test"

    def unavailable(self) -> str | None:
        return None

    def unsupported(self, instance: Instance) -> str | None:
        return None

    def run(self, solve_state: SolveState) -> Result:
        timetable = greedy_timetable(solve_state.operations)
        assert timetable is not None
        solve_state.offer(timetable)
        while solve_state.reason() is None:
            time.sleep(0.001)
        return solve_state.result(solve_state.reason() or StoppedBy.COMPLETED)


class Missing(Waits):
    """Has no engine."""

    def unavailable(self) -> str | None:
        return "engine>=1"


def instance() -> Instance:
    return load("server/weighted")


def solver_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("jigsaw-solving")]


def ended(thread: threading.Thread) -> bool:
    thread.join(timeout=60)
    return not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["greedy", "cpsat", "ilp", "search", "portfolio"])
def test_the_plan_of_an_event_is_checked_and_has_the_events_figures(solver: str) -> None:
    seen: list[tuple[Event, Plan | None]] = []
    asked = Options(threads=1, work_limit=0.2)
    result = solve(instance(), solver, asked, on_event=lambda event: seen.append((event, event.plan)))
    assert [event for event, _ in seen] == list(result.trajectory)
    assert any(plan is not None for _, plan in seen)
    for event, plan in seen:
        assert (plan is None) == (event.objective is None)
        if plan is not None:
            assert (plan.objective, plan.bound) == (event.objective, event.bound)
            assert check(instance(), plan) == ()
    last = seen[-1][1]
    assert last is not None and result.plan is not None and last.jobs == result.plan.jobs


def test_nobody_who_asks_for_no_plan_pays_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    monkeypatch.setattr(state, "require_correct", lambda instance, plan, maker: checks.append(maker))
    events: list[Event] = []
    solve(instance(), "greedy", on_event=events.append)
    assert len(events) > 1 and not checks
    plan = events[-1].plan
    assert plan is not None and events[-1].plan is plan
    assert checks == ["solver 'greedy'"]


def test_a_trajectory_keeps_no_plans_alive() -> None:
    result = solve(instance(), "greedy")
    assert [type(event) for event in result.trajectory] == [Event] * len(result.trajectory)
    assert result.trajectory[-1].plan is None


def test_a_wrong_plan_is_never_shown() -> None:
    operations, events = compile_instance(instance()), list[Event]()
    solve_state = SolveState("wrong", operations, Options(), events.append)
    timetable = greedy_timetable(operations)
    assert timetable is not None
    solve_state.offer(Timetable((replace(timetable.jobs[0], gpus=timetable.jobs[1].gpus), *timetable.jobs[1:]), None))
    with pytest.raises(WrongPlanError, match="solver 'wrong'"):
        _ = events[-1].plan


def test_a_limit_that_leaves_no_time_to_check_leaves_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_SECONDS_OF_BLOCK", 1e3)
    operations, events = compile_instance(instance()), list[Event]()
    solve_state = SolveState("slow", operations, Options(time_limit=10), events.append)
    timetable = greedy_timetable(operations)
    assert timetable is not None
    solve_state.offer(timetable)
    assert events[-1].plan is None
    solve_state.result(StoppedBy.TIME)
    assert events[-1].plan is not None, "the solve is over, and the time is the reader's"


@pytest.mark.parametrize("solver", ["greedy", "cpsat", "search", "portfolio"])
def test_what_a_callback_raises_ends_the_solve_and_reaches_the_caller(solver: str) -> None:
    def report(event: Event) -> None:
        if event.objective is not None:
            raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"):
        solve(instance(), solver, Options(threads=2, time_limit=60), on_event=report)


@pytest.mark.parametrize("solver", ["Waits()", "'search'"])
def test_a_program_ends_though_an_iterator_was_left_half_way(solver: str) -> None:
    command = [sys.executable, "-c", LEFT.format(solver=solver)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_an_iterator_ends_with_the_solve_and_has_its_result(pair: Instance) -> None:
    events = solving(pair, "cpsat", Options(threads=1))
    seen = list(events)
    assert seen[-1] == events.result.trajectory[-1]
    assert events.result.status is Status.OPTIMAL
    assert set(seen) <= set(events.result.trajectory)
    plan = seen[-1].plan
    assert plan is not None and plan.objective == 1800


def test_leaving_a_with_block_ends_the_solve_and_keeps_its_plan() -> None:
    with solving(instance(), Waits()) as events:
        for event in events:
            if event.plan is not None:
                break
    assert events.result.stopped_by is StoppedBy.INTERRUPT
    assert events.result.plan is not None and events.result.plan.objective == event.objective
    assert len(list(events)) <= 1, "what nobody took yet"


def test_leaving_a_loop_ends_the_solve_of_an_iterator_without_a_name() -> None:
    before = set(solver_threads())
    for event in solving(instance(), Waits()):
        (thread,) = set(solver_threads()) - before
        if event.objective is not None:
            break
    gc.collect()
    assert ended(thread)


def test_an_error_in_a_loop_ends_the_solve() -> None:
    before = set(solver_threads())
    with pytest.raises(KeyError):
        for _ in solving(instance(), Waits()):
            (thread,) = set(solver_threads()) - before
            raise KeyError("of the caller")
    gc.collect()
    assert ended(thread)


def test_ctrl_c_leaves_the_loop_and_ends_the_solve() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), solving(instance(), Waits()) as events:
        for event in events:
            if event.objective is not None:
                # No event follows, so it comes while the loop waits for one.
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert events.result.stopped_by is StoppedBy.INTERRUPT and events.result.plan is not None
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_flag_of_the_options_ends_the_solve_and_is_left_alone() -> None:
    options = Options(threads=1)
    with solving(instance(), Waits(), options) as first:
        next(first)
    assert not options.cancel.is_set()
    second = solving(instance(), Waits(), options)
    next(second)
    options.cancel.set()
    assert second.result.stopped_by is StoppedBy.INTERRUPT


def test_an_iterator_raises_what_the_solve_raises() -> None:
    with pytest.raises(match="engine>=1"):
        next(solving(instance(), Missing()))
    events: Solving = solving(instance(), "cpsatt")
    with misuse("unknown-name method", naming=["'cpsat'"]):
        list(events)
    with misuse("unknown-name method", naming=["'cpsat'"]):
        _ = events.result


def test_several_solves_at_once_do_not_disturb_each_other(pair: Instance) -> None:
    alone = solve(instance(), "search", Options(threads=1, work_limit=0.05))
    with solving(instance(), Waits()) as waiting:
        both = [solving(instance(), "search", Options(threads=1, work_limit=0.05)) for _ in range(2)]
        objectives = [one.result.objective for one in both]
        assert next(waiting).bound > 0
    assert objectives == [alone.objective] * 2

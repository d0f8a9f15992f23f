"""Engines that do not end when they are asked to: limits, plans, exit codes and the next solve are as if they did."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.bounds.packing.placement_loads import PlacementTest
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext
from jigsaw_opt.solvers.engines import stoppable
from jigsaw_opt.solvers.engines.stoppable import run_stoppable
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.refusals import fails

cp_model = pytest.importorskip("ortools.sat.python.cp_model")
LONG = 60.0
"""Seconds that no test takes, on any machine; engines that hear nothing would take as long."""
DEAF = """
import ctypes, sys
from ortools.sat.python import cp_model
cp_model.CpSolver.solve = lambda *_: ctypes.CDLL(None).sleep(1000)
from jigsaw_opt.cli import main
sys.exit(main())
"""


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """CP-SAT waits for the end of the test, whatever it is asked; what it yields fills where it gave up earlier."""
    flag, given_up = Event(), []

    def wait(self: object, *_: object) -> int:
        if not flag.wait(2 * LONG):
            given_up.append(True)
        return int(cp_model.UNKNOWN)

    monkeypatch.setattr(cp_model.CpSolver, "solve", wait)
    yield given_up
    flag.set()


@pytest.mark.parametrize("name", ["server/weighted", "server/cyclic-mixed"])
@pytest.mark.parametrize(("solver", "workers"), [("portfolio", 1), ("portfolio", 2), ("cpsat", 1), ("search", 2)])
def test_a_solve_ends_at_its_limit(solver: str, name: str, workers: int, deaf: list[bool]) -> None:
    instance = load(name)
    # With a start there is a plan on any machine; without one, whether the first is in time depends on its speed.
    start = solve(instance, "greedy", Options(threads=1)).plan
    result = solve(instance, solver, Options(time_limit=1.0, threads=workers), start=start)
    assert deaf == [], "the engine was waited for"
    assert result.stopped_by in (StoppedBy.TIME, StoppedBy.PROOF)
    assert result.plan is not None
    assert check(instance, result.plan) == ()


def test_other_reasons_to_stop_end_it_as_well(deaf: list[bool]) -> None:
    instance = load("server/weighted")
    cancelled = Options(threads=1)
    cancelled.cancel.set()
    assert solve(instance, "cpsat", cancelled).stopped_by == StoppedBy.INTERRUPT
    idle = solve(instance, "cpsat", Options(threads=1, no_improvement=0.5))
    assert (idle.status, idle.stopped_by) == (Status.FEASIBLE, StoppedBy.NO_IMPROVEMENT)


@pytest.mark.slow
def test_the_next_solve_is_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, flag = load("tiny/021"), Event()
    with monkeypatch.context() as patched:
        patched.setattr(cp_model.CpSolver, "solve", lambda *_: flag.wait(2 * LONG))
        assert solve(instance, "cpsat", Options(threads=1, time_limit=1.0)).stopped_by == StoppedBy.TIME
        later = solve(instance, "cpsat", Options(threads=1, time_limit=1.0))
    assert later.status == Status.FEASIBLE
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    flag.set()
    assert result.status == Status.OPTIMAL


def test_a_bound_whose_time_is_over_leaves_the_solve_its_own(deaf: list[bool]) -> None:
    context = BoundContext(compile_instance(load("rack/oversubscribed")))
    asked = count()
    budget = BoundBudget(10.0, lambda: next(asked) > 2)
    assert PlacementTest(context).refutes(1, budget) is None
    assert next(asked) > 2


def test_what_an_engine_says_later_is_not_heard() -> None:
    operations = compile_instance(load("tiny/021"))
    lines: list[str] = []
    events: list[object] = []
    solve_state = SolveState("late", operations, Options(threads=1, engine_log=lines.append), events.append)
    listen = solve_state.engine_listener
    assert listen is not None
    listen("in time")
    result = solve_state.result(StoppedBy.TIME)
    timetable = greedy_timetable(operations, 0)
    assert timetable is not None
    assert not solve_state.offer(timetable)
    solve_state.raise_bound(10**9)
    listen("late")
    assert (solve_state.objective, solve_state.bound, lines) == (None, result.bound, ["in time"])
    assert len(events) == 1


def test_an_engine_that_listens_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stoppable, "_PATIENCE_SECONDS", LONG)
    asked = Event()

    def call() -> str:
        assert asked.wait(LONG)
        time.sleep(0.1)
        return "its best"

    assert run_stoppable(call, asked.set, "listening", lambda: True) == "its best"


def test_an_engine_that_does_not_listen_is_left_behind() -> None:
    flag = Event()
    with fails(OutOfTimeError, "'deaf'"):
        run_stoppable(lambda: flag.wait(LONG), lambda: None, "deaf", lambda: True)
    assert not flag.is_set()
    flag.set()


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cpsat", "auto"])
def test_the_program_ends_with_its_exit_code(solver: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    arguments = ["solve", "server/weighted", "--solver", solver, "--time-limit", "4", "--json", "-o", str(plan)]
    ended = subprocess.run(
        [sys.executable, "-c", DEAF, *arguments], capture_output=True, text=True, timeout=2 * LONG, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    told: dict[str, Any] = json.loads(ended.stdout)
    assert json.loads(plan.read_text())["objective"] == told["objective"]

"""The one call: what leaves it is checked, and every stop rule names itself."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import MissingEngineError, PluginError, UsageError, WrongPlanError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance, Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.depth import DepthPlugin
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.bounds import Relaxation, registry
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.portfolio.auto import AUTO
from jigsaw_opt.solvers.registry import find, names
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy, relative_gap
from jigsaw_opt.solvers.search import Search
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solving import solve_async
from tests.refusals import fails, misuse


@dataclass(frozen=True)
class Scripted:
    """A third party's solver: greedy's plan, shifted by some microseconds."""

    shift_us: int = 0
    missing: str | None = None
    refuses: str | None = None
    name: str = "scripted"
    display_name: str = "a solver of a test"

    def unavailable(self) -> str | None:
        return self.missing

    def unsupported(self, instance: Instance) -> str | None:
        return self.refuses

    def run(self, solve_state: SolveState) -> Result:
        timetable = greedy_timetable(solve_state.operations)
        assert timetable is not None
        solve_state.offer(Timetable(tuple(timetable.jobs), timetable.period_us))
        result = solve_state.result(StoppedBy.COMPLETED)
        if self.shift_us and result.plan is not None:
            wrong = replace(result.plan, objective=result.plan.objective + self.shift_us)
            result = replace(result, plan=wrong)
        return result


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[Instance]:
    """Every instance that is cut, whoever cuts it."""
    seen: list[Instance] = []

    def counted(instance: Instance) -> Operations:
        seen.append(instance)
        return compile_instance(instance)

    for module in [module for name, module in sys.modules.items() if name.startswith("jigsaw_opt.")]:
        if getattr(module, "compile_instance", None) is compile_instance:
            monkeypatch.setattr(module, "compile_instance", counted)
    return seen


@pytest.mark.parametrize("solver", ["auto", "cpsat", "greedy", "ilp", "portfolio", "search"])
def test_an_instance_is_cut_once(solver: str, pair: Instance, cuts: list[Instance]) -> None:
    assert solve(pair, solver, Options(threads=1, work_limit=0.1)).plan is not None
    assert cuts == [pair]


def test_a_changed_instance_is_cut_once(pair: Instance, cuts: list[Instance]) -> None:
    plan = solve(pair, "greedy").plan
    assert plan is not None
    cuts.clear()
    assert solve(pair, "auto", Options(threads=1), start=plan, fix=Fix()).plan is not None
    assert cuts == [pair]


def test_every_registered_solver_is_found_and_says_what_it_is() -> None:
    assert set(names()) >= {"auto", "cpsat", "greedy", "ilp"}
    for name in names():
        assert find(name).name == name
        assert find(name).display_name


def test_a_solver_need_not_be_registered(pair: Instance) -> None:
    result = solve(pair, Scripted())
    assert result.solver == "scripted"
    assert result.plan is not None and result.objective == result.plan.objective


def test_an_exception_of_somebodys_solver_names_it(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Result:
        raise ValueError("no such order")

    monkeypatch.setattr(Scripted, "run", broken)
    with fails(PluginError, "'scripted'", "ValueError", "no such order") as raised:
        solve(pair, Scripted())
    assert isinstance(raised.value.__cause__, ValueError)


def test_an_exception_of_the_receiver_of_events_stays_as_it_is(pair: Instance) -> None:
    def broken(event: Event) -> None:
        raise ValueError("a full disk")

    with pytest.raises(ValueError, match=r"^a full disk$"):
        solve(pair, Scripted(), on_event=broken)


def test_the_name_of_an_instance_is_refused_with_what_gives_one(pair: Instance) -> None:
    name: Any = "server/plain"
    for use in (solve, lambda name: asyncio.run(solve_async(name))):
        with misuse("wrong-type instance", naming=["'server/plain'", "instances.load(", "load_instance("]):
            use(name)
    with misuse("wrong-type method", naming=["'scripted'"]):
        solve(pair, Scripted)  # type: ignore[arg-type]
    with misuse("wrong-type instance", naming=["Instance", "dict"]):
        instance_sha256({})  # type: ignore[arg-type]
    for argument in ("start", "fix"):
        with misuse(f"wrong-type {argument}"):
            solve(pair, "greedy", **{argument: 3})  # type: ignore[arg-type]


def test_options_are_no_dictionary(pair: Instance) -> None:
    with misuse("wrong-type options"):
        solve(pair, "greedy", {"time_limit": 1})  # type: ignore[arg-type]


def test_options_that_are_no_numbers_are_told_together() -> None:
    wrong: dict[str, Any] = {"time_limit": "1", "threads": None, "seed": 1.5, "gap": None}
    with pytest.raises(UsageError) as raised:
        Options(**wrong)
    assert raised.value.args == (
        "time_limit is a number, not '1'",
        "seed is a whole number, not 1.5",
        "threads is a whole number, not None",
    )


def test_a_wrong_plan_never_leaves(pair: Instance) -> None:
    with pytest.raises(WrongPlanError, match=r"docs/specification\.md#objective"):
        solve(pair, Scripted(shift_us=-1))


def test_a_missing_engine_and_a_refusal_are_told_apart(pair: Instance) -> None:
    with pytest.raises(MissingEngineError, match="pip install 'engine>=1'"):
        solve(pair, Scripted(missing="engine>=1"))
    with pytest.raises(UsageError, match="finite only"):
        solve(pair, Scripted(refuses="finite only"))
    with misuse("unknown-name method", naming=["'cpsat'"]):
        solve(pair, "cpsatt")


def test_a_solver_that_does_not_say_so_takes_no_guarantees(pair: Instance) -> None:
    guaranteed = replace(pair, jobs=(replace(pair.jobs[0], deadline_us=10**6), *pair.jobs[1:]))
    with misuse("unsupported instance", naming=["'scripted'", "'a'", "deadline"]):
        solve(guaranteed, Scripted())


def test_a_solver_that_does_not_say_so_takes_no_route_policies(pair: Instance) -> None:
    cluster = replace(pair.cluster, route_policies={"p": RoutePolicy()})
    policed = replace(pair, cluster=cluster, jobs=(replace(pair.jobs[0], route_policy="p"), *pair.jobs[1:]))
    with misuse("unsupported instance", naming=["'scripted'", "'a'", "route policy"]):
        solve(policed, Scripted())


def test_the_example_is_proven_by_both_exact_solvers(pair: Instance) -> None:
    for name in ("cpsat", "ilp", "auto"):
        events: list[Event] = []
        result = solve(pair, name, Options(threads=1), on_event=events.append)
        assert (result.status, result.stopped_by) == (Status.OPTIMAL, StoppedBy.PROOF)
        assert (result.objective, result.bound, result.gap) == (1800, 1800, 0.0)
        assert tuple(events) == result.trajectory
        bounds = [event.bound for event in events]
        assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(threads=1, target=10**12), StoppedBy.TARGET),
        (Options(threads=1, gap=0.9), StoppedBy.GAP),
        (Options(threads=1, time_limit=0), StoppedBy.TIME),
        (Options(threads=1, no_improvement=0), StoppedBy.NO_IMPROVEMENT),
    ],
    ids=["target", "gap", "time", "no improvement"],
)
def test_stop_rules(options: Options, reason: StoppedBy) -> None:
    result = solve(load("server/weighted"), "cpsat", options)
    assert result.stopped_by == reason
    assert result.status == Status.FEASIBLE
    assert result.objective is not None and 0 < result.bound < result.objective


def test_a_cancelled_solve_keeps_its_plan() -> None:
    options = Options(threads=1)
    options.cancel.set()
    result = solve(load("server/weighted"), "cpsat", options)
    assert result.stopped_by == StoppedBy.INTERRUPT
    assert result.plan is not None


def test_the_options_of_a_cancelled_solve_cancel_the_next_until_their_flag_is_cleared() -> None:
    options, weighted = Options(threads=1, work_limit=0.01), load("server/weighted")
    options.cancel.set()
    assert [solve(weighted, "search", options).stopped_by for _ in range(2)] == [StoppedBy.INTERRUPT] * 2
    options.cancel.clear()
    assert solve(weighted, "search", options).stopped_by is not StoppedBy.INTERRUPT


def test_a_control_that_has_ended_takes_no_other_solve(pair: Instance) -> None:
    options = Options(threads=1)
    options.cancel.set()
    solve_state = SolveState("twice", compile_instance(pair), options, lambda event: None)
    assert solve_state.conclude(lambda: None).stopped_by is StoppedBy.INTERRUPT
    options.cancel.clear()
    with misuse("wrong-order", naming=["'twice'"]):
        solve_state.conclude(lambda: None)


def test_auto_falls_back_on_greedy_without_ortools(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AUTO.choose(pair).name == "portfolio"
    monkeypatch.setattr("jigsaw_opt.solvers.solve_state.request.find_spec", lambda name: None)
    assert AUTO.choose(pair).name == "greedy"


def test_the_gap_of_nothing_is_nothing() -> None:
    assert relative_gap(0, 0) == 0.0
    assert relative_gap(4, 3) == 0.25


def test_the_gap_over_time_counts_as_one_before_there_is_a_plan() -> None:
    events = (Event(1.0, None, 50), Event(2.0, 100, 50), Event(4.0, 100, 75))
    result = Result(Status.FEASIBLE, StoppedBy.TIME, 100, 75, None, trajectory=events, seconds=5.0)
    assert result.primal_dual_integral(10.0) == pytest.approx(2 + 2 * 0.5 + 6 * 0.25)
    assert result.primal_dual_integral() == pytest.approx(2 + 2 * 0.5 + 1 * 0.25)
    assert result.primal_dual_integral(3.0) == pytest.approx(2 + 1 * 0.5)
    none = Result(Status.INFEASIBLE, StoppedBy.PROOF, None, 50, None, trajectory=events[:1], seconds=3.0)
    assert none.primal_dual_integral(10.0) == pytest.approx(3.0)


def test_a_solve_in_an_event_loop_ends_with_its_task(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Result] = []

    def recorded(*asked: Any, **further: Any) -> Result:
        results.append(solve(*asked, **further))
        return results[-1]

    async def both() -> tuple[Status, Options]:
        found = await solve_async(pair, "greedy", Options(threads=1))
        options = Options(threads=1, time_limit=60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(solve_async(load("pod/weighted"), "search", options), 0.05)
        return found.status, options

    monkeypatch.setattr("jigsaw_opt.solvers.solving.solve", recorded)
    status, options = asyncio.run(both())  # waits for the thread
    assert status == Status.OPTIMAL and options.cancel.is_set()
    assert [result.stopped_by for result in results] == [StoppedBy.PROOF, StoppedBy.INTERRUPT]


def test_an_event_loop_hears_what_is_wrong(pair: Instance) -> None:
    with misuse("unknown-name method", naming=["'none'"]):
        asyncio.run(solve_async(pair, "none"))


@pytest.mark.parametrize("kind", ["bound", "move", "depth rule"])
def test_an_exception_of_what_others_registered_names_it(
    pair: Instance, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a bug of theirs")

    if kind == "bound":
        known = Relaxation("theirs", broken, frozenset({pair.objective}), instant=True)
        monkeypatch.setattr(registry, "_everything", lambda: (known,))
    method: str | Search = "greedy"
    if kind == "move":
        members = {"name": "theirs", "__init__": lambda *_: None, "applies": lambda _: True, "run": broken}
        method, pair = Search(moves=(type("Theirs", (), members),)), load("server/weighted")
    if kind == "depth rule":
        members = {"rule": "theirs", "limits": broken, "broken": broken, "__module__": __name__}
        rule = dataclass(frozen=True)(type("Theirs", (DepthPlugin,), members))()
        pair = replace(pair, jobs=(replace(pair.jobs[0], depth=rule), *pair.jobs[1:]))
    with fails(PluginError, f"{kind} 'theirs'", "ZeroDivisionError: a bug of theirs"):
        solve(pair, method, Options(work_limit=0.3, threads=1))

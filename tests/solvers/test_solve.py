"""The one call: what leaves it is checked, and every stop rule names itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from jigsaw_opt.errors import MissingEngineError, UsageError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance, cut
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.auto import AUTO
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, names
from jigsaw_opt.solvers.result import Event, Report, Result, Status, StoppedBy, relative_gap
from jigsaw_opt.solvers.solve import UncheckedPlanError, solve


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

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        pieces = cut(instance)
        control = Control(self.name, pieces, options, report)
        timetable = greedy_timetable(pieces)
        assert timetable is not None
        control.offer(Timetable(tuple(timetable.jobs), timetable.period_us))
        result = control.result(StoppedBy.COMPLETED)
        if self.shift_us and result.plan is not None:
            wrong = replace(result.plan, objective=result.plan.objective + self.shift_us)
            result = replace(result, plan=wrong)
        return result


def test_every_registered_solver_is_found_and_says_what_it_is() -> None:
    assert set(names()) >= {"auto", "cpsat", "greedy", "ilp"}
    for name in names():
        assert find(name).name == name
        assert find(name).display_name


def test_a_solver_need_not_be_registered(pair: Instance) -> None:
    result = solve(pair, Scripted())
    assert result.solver == "scripted"
    assert result.plan is not None and result.objective == result.plan.objective


def test_a_wrong_plan_never_leaves(pair: Instance) -> None:
    with pytest.raises(UncheckedPlanError, match=r"4\.6"):
        solve(pair, Scripted(shift_us=-1))


def test_a_missing_engine_and_a_refusal_are_told_apart(pair: Instance) -> None:
    with pytest.raises(MissingEngineError, match="pip install 'engine>=1'"):
        solve(pair, Scripted(missing="engine>=1"))
    with pytest.raises(UsageError, match="finite only"):
        solve(pair, Scripted(refuses="finite only"))
    with pytest.raises(UsageError, match="did you mean"):
        solve(pair, "cpsatt")


def test_the_example_is_proven_by_both_exact_solvers(pair: Instance) -> None:
    for name in ("cpsat", "ilp", "auto"):
        events: list[Event] = []
        result = solve(pair, name, Options(workers=1), events.append)
        assert (result.status, result.stopped_by) == (Status.OPTIMAL, StoppedBy.PROOF)
        assert (result.objective, result.bound, result.gap) == (1800, 1800, 0.0)
        assert tuple(events) == result.trajectory
        bounds = [event.bound for event in events]
        assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(workers=1, target=10**12), StoppedBy.TARGET),
        (Options(workers=1, gap=0.9), StoppedBy.GAP),
        (Options(workers=1, time_limit=0), StoppedBy.TIME),
        (Options(workers=1, no_improvement=0), StoppedBy.NO_IMPROVEMENT),
    ],
    ids=["target", "gap", "time", "no improvement"],
)
def test_stop_rules(options: Options, reason: StoppedBy) -> None:
    result = solve(load("server/weighted"), "cpsat", options)
    assert result.stopped_by == reason
    assert result.status == Status.FEASIBLE
    assert result.objective is not None and 0 < result.bound < result.objective


def test_a_cancelled_solve_keeps_its_plan() -> None:
    options = Options(workers=1)
    options.cancel.set()
    result = solve(load("server/weighted"), "cpsat", options)
    assert result.stopped_by == StoppedBy.INTERRUPT
    assert result.plan is not None


def test_auto_falls_back_on_greedy_without_ortools(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AUTO.choose().name == "portfolio"
    monkeypatch.setattr("jigsaw_opt.solvers.engines.cpsat.find_spec", lambda name: None)
    assert AUTO.choose().name == "greedy"


def test_the_gap_of_nothing_is_nothing() -> None:
    assert relative_gap(0, 0) == 0.0
    assert relative_gap(4, 3) == 0.25

"""Cyclic plans of phases: the first will do until there is a phased plan, then better ones, none in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import timer
from jigsaw_opt.solvers.phased.phases import Gpus
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from tests.refusals import fails


class TimedPlacement:
    """The jobs of a bundled instance on GPUs that several of them share."""

    def __init__(self, **limits: float) -> None:
        self.instance = load("rack/weighted")
        names = [f"{server.name}/{k}" for server in self.instance.cluster.servers for k in range(server.gpus)]
        jobs = [job for job in self.instance.data_parallel if job.workers <= len(names)][:4]
        self.gpus = {job.name: tuple(names[: job.workers]) for job in jobs}
        self.counts = {job.name: 1 + k % 2 for k, job in enumerate(jobs)}
        self.instance = replace(self.instance, jobs=tuple(jobs))
        self.options = Options(threads=1, **limits)
        operations = compile_instance(self.instance)
        self.timer = PhaseTimer(SolveState("phased", operations, self.options, lambda _: None))

    def plan(self) -> Plan:
        return self.timer.timed((), self.counts, self.gpus)


def test_phase_gets_a_better_cyclic_plan_once_there_is_a_phased_plan() -> None:
    placement = TimedPlacement()
    first = placement.plan()
    assert placement.plan() is first
    placement.timer.first = False
    better = placement.plan()
    assert better.objective < first.objective
    assert placement.plan() is better


def test_phase_keeps_its_cyclic_plan_when_the_time_is_over() -> None:
    placement = TimedPlacement()
    first = placement.plan()
    placement.timer.first = False
    placement.options.cancel.set()
    assert placement.plan() is first


def test_phase_without_any_cyclic_plan_says_so_when_the_time_is_over() -> None:
    placement = TimedPlacement()
    placement.options.cancel.set()
    with fails(UntimedError, "time", "phase"):
        placement.plan()


def test_first_cyclic_plan_may_pass_a_limit_that_is_over() -> None:
    hurried, unhurried = TimedPlacement(time_limit=1e-9).plan(), TimedPlacement().plan()
    assert (hurried.period_us, hurried.jobs) == (unhurried.period_us, unhurried.jobs)


def test_time_of_a_cyclic_plan_counts_from_its_own_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    placement, made, seconds = TimedPlacement(time_limit=100.0), timer.time_placed, list[float]()

    def noted(solve_state: SolveState, gpus: Gpus, known: Timetable | None) -> Result:
        seconds.append(solve_state.seconds)
        return made(solve_state, gpus, known)

    monkeypatch.setattr(timer, "time_placed", noted)
    outer = clock.Clock(100.0, placement.options.cancel)
    outer.started -= 60.0
    with clock.limited(outer):
        placement.plan()
    assert len(seconds) == 1 and seconds[0] < 60


def test_phase_that_gains_nothing_by_more_time_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = TimedPlacement()
    first = placement.plan()
    placement.timer.first = False
    asked: list[Options] = []

    def in_vain(_: PhaseTimer, part: Instance, gpus: Gpus, known: Timetable | None, options: Options) -> Result:
        asked.append(options)
        return Result(Status.FEASIBLE, StoppedBy.TIME, first.objective, 0, first)

    monkeypatch.setattr(PhaseTimer, "_made", in_vain)
    assert placement.plan() is first and placement.plan() is first
    assert len(asked) == 1

"""Phased plans: task-graph jobs and their optima, where the time of jobs goes, and how phases are timed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt import Instance, Options
from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Model,
    Plan,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
    clock,
)
from jigsaw_opt.problem.compiled.operations import compile_instance, is_long
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan
from jigsaw_opt.solvers.bounds.activities import slot_loads
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData
from jigsaw_opt.solvers.explanation.stretches import JobStretches, explain_phases
from jigsaw_opt.solvers.phased import timer
from jigsaw_opt.solvers.phased.phases import Gpus
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.checking.test_phased_plans import INSTANCE, decoded, document
from tests.random_task_graphs import random_task_graph_instance
from tests.refusals import carries, fails, misuse
from tests.solvers.test_phased_solver import instance
from tests.views.test_views import embedded


def long(seed: int, factor: int, objective: str = "makespan") -> Instance:
    """A random instance whose jobs have so many times as many iterations."""
    found = random_task_graph_instance(seed, "finite", objective)  # type: ignore[arg-type]
    return replace(found, jobs=tuple(replace(job, iterations=factor * job.iterations) for job in found.jobs))


@pytest.mark.parametrize(("seed", "best"), [(2, 91), (3, 87), (4, 70), (8, 59), (12, 84)])
def test_as_good_as_the_best_listed_plan(seed: int, best: int) -> None:
    """`best` is the optimum of plans that list the iterations, as `auto` proves it."""
    asked = long(seed, 7)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    assert result.bound <= best == result.plan.objective


@pytest.mark.slow
def test_a_million_iterations_beside_a_data_parallel_job() -> None:
    asked = long(12, 10**6, "weighted_completion")
    assert is_long(asked, most=10**6)
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    kinds = {type(job) for _, _, phase in result.plan.all_phases() for job in phase.jobs}
    assert kinds == {JobPlan, TaskGraphJobPlan}


def test_a_pipeline_runs_beside_the_job_that_memory_keeps_it_apart_from() -> None:
    """On two servers of two GPUs, `wide` takes all and the others one server each; no two fit on the same GPU."""
    shape = TaskGraph(
        (Slot("a", 60), Slot("b", 60)),
        (TaskGraphBlock("f", ("a",), {"v": 20}), TaskGraphBlock("g", ("b",), {"v": 20})),
        (TaskGraphTransfer("t", 10, "a", "b"),),
        (Edge("f", "t"), Edge("t", "g")),
    )
    jobs = (
        Job("narrow", "net", 2, 4000),
        Job("wide", "net", 4, 1000),
        TaskGraphJob("pipe", shape, 1500),
    )
    cluster = Cluster(tuple(Server(name, "v", 2, 100, 10**9) for name in "xy"), (), (Link("xy", ("x", "y"), 10**9, 0),))
    net = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 60),))
    asked = Instance("beside", cluster, {"net": net}, jobs, "finite", "makespan")
    result = solve(asked, "phased", Options(threads=1))
    assert result.plan is not None and check(asked, result.plan) == ()
    both, alone = 40_000, 10_000
    assert result.objective is not None and result.objective <= 1.05 * (both + alone)
    assert solve(asked, "phased", Options(threads=1)).objective == result.objective


def test_a_phased_plan_with_shapes_is_not_gone_on_from() -> None:
    asked = long(2, 7)
    plan = solve(asked, "phased", Options(threads=1)).plan
    assert plan is not None
    with misuse("unsupported start", naming=["task graph"]):
        solve(replace(asked, name="other"), "phased", Options(threads=1), start=plan, fix=Fix())


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_many_iterations_are_not_longer_than_they_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = long(seed, 30)
    for job in asked.task_graph_jobs:
        exact = TaskGraphData(compile_task_graph(job), asked.cluster).longest_chain()[0]
        monkeypatch.setattr(slot_loads, "_MOST_LISTED", 10 * compile_task_graph(job).size)
        repeated = TaskGraphData(compile_task_graph(job), asked.cluster)
        assert repeated.listed == 10 < job.iterations
        assert 0.9 * exact <= repeated.longest_chain()[0] <= exact
        monkeypatch.undo()


def require_sums(job: JobStretches) -> None:
    at = 0
    for stretch in job.stretches:
        assert stretch.start_us == at < stretch.end_us
        at = stretch.end_us
        if stretch.within is not None:
            assert sum(stretch.within.time_us.values()) == stretch.within.period_us
            assert min(stretch.within.total_us.values()) >= 0
            assert sum(stretch.within.total_us.values()) == stretch.end_us - stretch.start_us
    assert at == job.end_us == sum(job.time_us.values())


def iterations(job: JobStretches) -> int:
    return sum(
        stretch.within.iterations * stretch.within.repeats for stretch in job.stretches if stretch.within is not None
    )


def require_all(asked: Instance, plan: Plan) -> list[JobStretches]:
    found = explain_phases(asked, plan)
    for job, own in zip(asked.jobs, found, strict=True):
        require_sums(own)
        assert (own.job, iterations(own)) == (job.name, job.iterations)
    return found


def test_a_plan_by_hand() -> None:
    pair, free, lone, pipe, tail = require_all(INSTANCE, decoded(document()))
    assert pair.time_us == {"release": 3, "before": 0, "phase": 57 + 76, "seam": 96}
    assert [stretch.held_by for stretch in pair.stretches if stretch.kind == "seam"] == [
        {"x/0": ("free",), "y/0": ("free", "lone")}
    ]
    assert free.stretches[0].held_by == {"x/0": ("pair",), "y/0": ("pair", "lone")}
    assert (free.stretches[0].end_us, free.end_us) == (80, 156)
    assert [stretch.within.others for stretch in lone.stretches if stretch.within] == [("pair",), ("free",)]
    # Its one block of 10 us begins 25 us after each repetition does, whose period is 19 us.
    assert (lone.stretches[1].start_us, lone.stretches[1].end_us) == (3, 3 + 2 * 19 + 35)
    within = lone.stretches[1].within
    assert within is not None and (within.time_us["compute"], within.total_us["compute"]) >= (10, 30)
    assert [stretch.kind for stretch in pipe.stretches] == ["phase", "seam", "phase"]
    assert tail.stretches[0].held_by == {"z/0": ("pipe",)} and tail.time_us["before"] == 50


def test_sums_on_a_plan_that_is_made() -> None:
    asked = instance(Job("a", "net", 4, 10), Job("b", "net", 4, 6, release_us=70))
    plan = solve(asked, "phased", Options(threads=1)).plan
    assert plan is not None
    found = require_all(asked, plan)
    assert explain_phases(asked, plan, "b") == [found[1]]


def test_the_command_on_a_phased_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, files = decoded(document()), [str(tmp_path / "i.json"), str(tmp_path / "p.json")]
    save_instance(INSTANCE, files[0])
    save_plan(plan, files[1])
    assert main(["explain", *files]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["job", "end", "us"] and len(lines) == len(INSTANCE.jobs)
    (tail,) = (line for line in lines if line.startswith("tail"))
    assert tail.split()[:3] == ["tail", "80", "1"] and carries(tail, "waits", "z/0")
    assert main(["explain", *files, "tail"]) == 0
    printed = capsys.readouterr().out
    assert carries(printed, "80 us", "begin", "0 us")
    assert carries(printed, "waits", "z/0")
    assert carries(printed, "1", "1", "3 x", "10 us", "1 iteration", "compute", "30")
    assert main(["explain", *files, "pair", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["job"] for job in told["jobs"]] == ["pair"]
    totals = [each["within"]["total_us"] for each in told["jobs"][0]["stretches"] if each["within"]]
    assert [sum(total.values()) for total in totals] == [57, 76]
    assert main(["explain", *files, "pair", "-o", str(tmp_path / "page.html")]) == 0
    pages: Any = [phase["page"] for phase in embedded((tmp_path / "page.html").read_text())["phases"]]  # type: ignore[attr-defined]
    chosen = [None if page["chosen"] is None else page["jobs"][page["chosen"]]["name"] for page in pages]
    in_phases = [any(job.name == "pair" for job in phase.jobs) for _, _, phase in plan.all_phases()]
    assert [name == "pair" for name in chosen] == in_phases and any(in_phases)
    assert main(["explain", *files, "nobody"]) == 2
    with pytest.raises(UsageError, match="nobody"):
        explain_phases(INSTANCE, plan, "nobody")


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

"""What `import jigsaw_opt` offers: every name, loaded when used, typed for callers, silent, the same as underneath."""

from __future__ import annotations

import ast
import importlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import jigsaw_opt as jo
from jigsaw_opt.errors import MissingEngineError
from jigsaw_opt.planning.pipeline.asynchronous import AsyncSchedule
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policy import PolicySetting
from jigsaw_opt.solvers.bounds import Relaxation
from jigsaw_opt.system.former_names import FormerNameWarning, is_said
from tests import typed_caller

PACKAGE = Path(jo.__file__).parent
DATA = Path(__file__).parent / "data"
SILENT = """
import logging, sys
import jigsaw_opt
assert [type(handler) for handler in logging.getLogger("jigsaw_opt").handlers] == [logging.NullHandler]
result = jigsaw_opt.solve(jigsaw_opt.instances.load("tiny/000"), "greedy")
assert result.plan is not None
"""
PRINTING = {"system/keeper_process.py"}
"""Programs of their own, whose standard output somebody reads."""


def typed_names() -> dict[str, str]:
    """The names that a type checker sees, and the module of each."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module or ""
        for node in imports
        for alias in node.names
        if (node.module or "").startswith("jigsaw_opt") and alias.asname == alias.name
    }


def test_every_name_is_there_for_callers_and_for_type_checkers() -> None:
    typed = typed_names()
    assert set(typed) == {*jo.__all__, *jo._NEED_TORCH}
    assert set(typed) <= set(dir(jo))
    for name, module in typed.items():
        if name in jo._NEED_TORCH and find_spec("torch") is None:
            with pytest.raises(MissingEngineError, match=r"jigsaw-opt\[torch\]"):
                getattr(jo, name)
            continue
        found = getattr(jo, name)
        source = importlib.import_module(module)
        assert found is (getattr(source, name))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = jo.nonsense  # type: ignore[attr-defined]


def test_all_names_are_there_at_once_without_an_extra() -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "ray", "matplotlib", "plotly", "topohub")))
from jigsaw_opt import *
assert solve and Plan and picture
import jigsaw_opt
for name in jigsaw_opt._NEED_TORCH:
    try:
        getattr(jigsaw_opt, name)
    except jigsaw_opt.JigsawError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("jigsaw-opt[torch]") == len(jo._NEED_TORCH)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("check", ("pair", None), "None is no Plan; load_plan(PATH) and the plan of a Result are one"),
        ("picture", ("a", None), "'a' is no Instance; instances.load(NAME) and load_instance(PATH) give one"),
        ("picture", ("pair", None), "None is no Plan; load_plan(PATH)"),
        ("add_job", ("a", None), "'a' is no Instance; instances.load(NAME)"),
        ("remove_job", ("a", "b"), "'a' is no Instance; instances.load(NAME)"),
        ("change_bandwidth", ("a", "b", "c"), "'a' is no Instance; instances.load(NAME)"),
        ("save_instance", ("x.json", "pair"), "'x.json' is no Instance; instances.load(NAME)"),
        ("save_plan", ("x.json", "plan"), "'x.json' is no Plan; load_plan(PATH)"),
        ("placements_of", (None,), "None is no Plan; load_plan(PATH)"),
        ("simulate", ("day", None, "fifo"), "cluster is text, a Cluster or an Instance, not None"),
        ("Session", ("a",), "'a' is no Instance; instances.load(NAME)"),
        ("Session", ("pair", "p.json"), "'p.json' is no Plan; load_plan(PATH)"),
        ("LiveScheduler", ("2x4",), "'2x4' is no Cluster; an Instance has one"),
        ("run_plan", ("pair",), "an Instance is no ReplayRequest; as in ReplayRequest(instance"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_gives_one(
    name: str, arguments: tuple[str | None, ...], told: str
) -> None:
    known = {"pair": jo.load_instance(DATA / "pair.json"), "plan": jo.load_plan(DATA / "pair.plan.json")}
    with pytest.raises(jo.UsageError) as caught:
        getattr(jo, name)(*(known.get(argument, argument) if argument else argument for argument in arguments))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PhasedPlan", "Plan"),
        ("PhasedResult", "Result"),
        ("load_any_plan", "load_plan"),
        ("Shape", "TaskGraph"),
        ("ShapedJob", "TaskGraphJob"),
    ],
)
def test_a_name_of_the_release_before_is_there_with_a_warning(old: str, new: str) -> None:
    assert old not in jo.__all__
    with pytest.warns(DeprecationWarning, match=f"jigsaw_opt.{old} is {new} now") as caught:
        assert getattr(jo, old) is getattr(jo, new)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("problem", "PhasedPlan", "Plan"),
        ("problem", "Shape", "TaskGraph"),
        ("problem", "ShapedJobPlan", "TaskGraphJobPlan"),
        ("documents", "load_any_plan", "load_plan"),
        ("documents", "load_listed_plan", "load_plan"),
        ("documents", "encode_phased_plan", "encode_plan"),
        ("documents", "decode_phased_plan", "decode_plan"),
        ("executor.run_plan", "run_phased_plan", "run_plan"),
        ("executor.run_plan", "PhasedReplayRequest", "ReplayRequest"),
        ("executor.replay.request", "PhasedReplayRequest", "ReplayRequest"),
    ],
)
def test_a_former_name_of_a_room_is_there_with_a_warning(module: str, old: str, new: str) -> None:
    room = importlib.import_module(f"jigsaw_opt.{module}")
    with pytest.warns(DeprecationWarning, match=f"jigsaw_opt.{module}.{old} is {new} now") as caught:
        assert getattr(room, old) is getattr(room, new)
    assert caught[0].filename == __file__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        room.nothing  # noqa: B018 - that is what is tested


@pytest.mark.parametrize(
    ("module", "old", "now"),
    [
        ("solvers.explanation.phased", "explain_phased", "solvers.explanation.stretches.explain_phases"),
        ("solvers.explanation.phased", "PhasedExplanation", "solvers.explanation.stretches.JobStretches"),
        ("solvers.explanation.phased", "PhaseTime", "solvers.explanation.stretches.PhaseTime"),
        ("problem.shape", "ShapedJob", "problem.task_graph.TaskGraphJob"),
        ("executor.schedule", "LevelSchedule", "executor.level_schedule.LevelSchedule"),
        ("solvers.resolve.failure_repair", "repaired", "solvers.failure_repair.repaired"),
        ("solvers.resolve.failure_repair", "FailureRepair", "solvers.failure_repair.FailureRepair"),
    ],
)
def test_a_name_that_went_to_another_module_is_there_with_a_warning(module: str, old: str, now: str) -> None:
    room = importlib.import_module(f"jigsaw_opt.{module}")
    where, name = now.rsplit(".", 1)
    with pytest.warns(DeprecationWarning, match=f"jigsaw_opt.{module}.{old} is jigsaw_opt.{now} now"):
        assert getattr(room, old) is getattr(importlib.import_module(f"jigsaw_opt.{where}"), name)


def test_words_of_task_graphs_of_the_release_before_work_with_a_warning() -> None:
    from jigsaw_opt.problem import Slot, TaskGraphBlock

    builder, pair = jo.InstanceBuilder("a"), jo.load_instance(DATA / "pair.json")
    builder.add_cluster(pair.cluster)
    types = {server.gpu_type: 1 for server in pair.cluster.servers}
    builder.add_task_graph_job("j", jo.TaskGraph((Slot("s"),), (TaskGraphBlock("b", ("s",), types),)), iterations=1)
    instance = builder.build()
    compiled = compile_instance(instance)
    with pytest.warns(DeprecationWarning, match=r"Instance.shaped is task_graph_jobs now") as of_instance:
        assert instance.shaped == instance.task_graph_jobs == instance.jobs
    with pytest.warns(DeprecationWarning, match=r"Operations.shaped is task_graphs now"):
        assert compiled.shaped == compiled.task_graphs and compiled.task_graphs[0].job == instance.jobs[0]
    assert of_instance[0].filename == __file__
    former = type("Former", (), {"name": "mine", "shapes": True})
    with pytest.warns(DeprecationWarning, match="the attribute shapes of mine is called task_graphs now"):
        assert is_said(former, "task_graphs", "shapes")
    assert not is_said(former, "guarantees", "promises")


def test_failures_are_found_by_the_call_of_the_release_before() -> None:
    from jigsaw_opt.solvers.resolve import failures
    from jigsaw_opt.solvers.resolve.phase_failures import effects_on

    pair, plan = jo.load_instance(DATA / "pair.json"), jo.load_plan(DATA / "pair.plan.json")
    with pytest.warns(DeprecationWarning, match=r"failure_effects is each_failure\(.*effects_on\(instance, plan\)"):
        found = list(failures.failure_effects(pair, plan, ("link", "server")))
    assert found and found == list(failures.each_failure(effects_on(pair, plan), ("link", "server")))


def test_what_signatures_name_can_be_imported_from_the_front() -> None:
    wanted = {"Event", "Fix", "Instance", "Options", "Plan", "Problem", "Report", "Result", "Solver", "Violation"}
    assert wanted <= set(jo.__all__)
    assert len(jo.__all__) <= 62
    errors = importlib.import_module("jigsaw_opt.errors")
    raised = {name for name in errors.__all__ if name.endswith("Error")}
    assert all(issubclass(getattr(errors, name), jo.JigsawError) for name in raised)


@pytest.mark.parametrize("room", jo._MOVED)
def test_a_name_that_is_one_of_a_room_now_is_there_with_a_warning(room: str) -> None:
    for name in jo._MOVED[room]:
        assert name not in jo.__all__
        with pytest.warns(DeprecationWarning, match=f"{name} is a name of jigsaw_opt.{room} now"):
            assert getattr(jo, name) is getattr(importlib.import_module(f"jigsaw_opt.{room}"), name)


def test_the_package_is_silent_where_nobody_listens() -> None:
    run = subprocess.run([sys.executable, "-c", SILENT], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.slow
def test_nothing_but_the_command_line_prints() -> None:
    printing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == PRINTING


def test_the_command_line_shows_what_is_logged_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jigsaw_opt.cli import main
    from jigsaw_opt.cli import solvers as command

    logger = logging.getLogger("jigsaw_opt.test")

    def run(arguments: object) -> int:
        logger.warning("seen")
        logger.info("seen with --debug")
        return 0

    monkeypatch.setattr(command, "run", run)
    before = list(logging.getLogger("jigsaw_opt").handlers)
    assert main(["solvers"]) == 0
    assert capsys.readouterr().err == "warning: seen\n"
    assert main(["solvers", "--debug"]) == 0
    assert capsys.readouterr().err == "warning: seen\ninfo: seen with --debug\n"
    assert logging.getLogger("jigsaw_opt").handlers == before


def test_a_typed_caller_runs(tmp_path: Path) -> None:
    status, objective, bound, gap, violations = typed_caller.call()
    assert (status, gap, violations) == (jo.Status.OPTIMAL, 0.0, ())
    assert objective == bound
    trace = tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,net,2,100\n")
    assert typed_caller.days(typed_caller.build(), str(trace)) is not None
    with pytest.raises(jo.InvalidInputError) as caught:
        jo.InstanceBuilder("empty").build()
    assert any("$.jobs" in line for line in typed_caller.told(caught.value))


def test_a_typed_caller_gets_plans() -> None:
    pytest.importorskip("ortools")
    instance = typed_caller.build()
    found = list(typed_caller.plans(instance, threading.Event()))
    assert found and all(jo.check(instance, plan) == () for plan in found)


@pytest.mark.parametrize(
    ("module", "former", "now"),
    [
        ("jigsaw_opt.problem", "cut", "jigsaw_opt.problem.operations.compile_instance"),
        ("jigsaw_opt.problem", "Hold", "jigsaw_opt.problem.task_graph.MemoryInterval"),
        ("jigsaw_opt.scheduling.policy", "Active", "jigsaw_opt.scheduling.policy.JobState"),
        ("jigsaw_opt.scheduling.policy", "Moment", "jigsaw_opt.scheduling.policy.Observation"),
        ("jigsaw_opt.scheduling.performance", "Pace", "jigsaw_opt.scheduling.performance.Speed"),
        ("jigsaw_opt.solvers.control", "Control", "jigsaw_opt.solvers.solve_state.SolveState"),
        ("jigsaw_opt.solvers.control", "NO_BOUND", "jigsaw_opt.solvers.solve_state.NO_BOUND"),
        ("jigsaw_opt.solvers.control", "first_bound", "jigsaw_opt.solvers.solve_state.first_bound"),
        ("jigsaw_opt.problem.clock", "look", "jigsaw_opt.problem.clock.check_deadline"),
        ("jigsaw_opt.problem.clock", "looking", "jigsaw_opt.problem.clock.checking_deadline"),
        ("jigsaw_opt.problem.operations", "cut", "jigsaw_opt.problem.operations.compile_instance"),
        ("jigsaw_opt.problem.plan", "ShapedIteration", "jigsaw_opt.problem.plan.TaskGraphIteration"),
        ("jigsaw_opt.problem.plan", "ShapedJobPlan", "jigsaw_opt.problem.plan.TaskGraphJobPlan"),
        ("jigsaw_opt.problem.shape", "Hold", "jigsaw_opt.problem.task_graph.MemoryInterval"),
    ],
)
def test_former_names_of_what_plugins_use_work_and_warn(module: str, former: str, now: str) -> None:
    home, _, name = now.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{former} is .*{name} now"):
        value = getattr(importlib.import_module(module), former)
    assert value is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize(
    ("kind", "former", "now"),
    [
        ("problem.instance.Instance", "promising", "guaranteed_jobs"),
        ("problem.operations.Operations", "shaped", "task_graphs"),
        ("problem.timetable.Timetable", "shaped", "task_graph_jobs"),
        ("executor.replay.request.ReplaySettings", "pace", "time_triggered"),
        ("planning.pipeline.asynchronous.AsyncSchedule", "pace_us", "initiation_interval_us"),
        ("scheduling.cluster_state.ClusterState", "moment", "observation"),
        ("solvers.bounds.relaxation.Relaxation", "shaped", "task_graphs"),
        ("solvers.options.Options", "robust", "survivable"),
        ("solvers.options.Options", "workers", "threads"),
        ("solvers.search.context.Context", "control", "solve_state"),
        ("solvers.solve_state.SolveState", "keeps_promises", "keeps_guarantees"),
    ],
)
def test_former_attributes_work_and_warn(kind: str, former: str, now: str) -> None:
    room, _, name = kind.rpartition(".")
    owner = getattr(importlib.import_module(f"jigsaw_opt.{room}"), name)
    one = type(name, (owner,), {now: "what it has now", "__init__": lambda self: None})()
    with pytest.warns(FormerNameWarning, match=f"{name}.{former} is {now} now") as caught:
        assert getattr(one, former) == "what it has now"
    assert caught[0].filename == __file__


def test_performance_models_by_the_former_name_of_their_method_work_and_warn() -> None:
    class Halved(Seconds):
        def paces(self, *asked: Any) -> Any:
            return tuple(replace(found, rate=found.rate // 2) for found in super().paces(*asked))

    class Own(Seconds):
        def speeds(self, *asked: Any) -> Any:
            return ("its own",)

    share, jobs = Share((0,), (0,)), [TraceJob("a", 0, None, 1, 10)]
    with pytest.warns(FormerNameWarning, match="the method paces of Halved is called speeds now"):
        setting = PolicySetting(jo.load_instance(DATA / "pair.json").cluster, Halved())
    with pytest.warns(FormerNameWarning, match="Halved.paces is speeds now") as of_super:
        (halved,) = setting.performance.speeds(share, jobs, [0])
    (full,) = Seconds().speeds(share, jobs, [0])
    assert halved.rate == full.rate // 2
    with pytest.warns(FormerNameWarning, match="Own.paces is speeds now"):
        assert Own().paces(share, jobs, [0]) == ("its own",)
    assert of_super[0].filename == __file__


def test_the_former_name_of_a_method_works_on_an_object_too() -> None:
    @dataclass(frozen=True)
    class Wrapped(Seconds):
        paces: Any = None

    def own(*asked: Any) -> Any:
        return ("its own",)

    patched = Seconds()
    patched.paces = own  # type: ignore[method-assign]
    cluster = jo.load_instance(DATA / "pair.json").cluster
    for model, called in ((patched, "Seconds"), (Wrapped(own), "Wrapped")):
        with pytest.warns(FormerNameWarning, match=f"the method paces of {called} is called speeds now"):
            assert PolicySetting(cluster, model).performance.speeds(Share((0,), (0,)), [], []) == ("its own",)
    assert Seconds().speeds(Share((0,), (0,)), [TraceJob("a", 0, None, 1, 10)], [0]) != ("its own",)


def test_something_else_by_the_name_that_a_method_has_now_is_refused() -> None:
    class OfObject(Seconds):
        def __init__(self) -> None:
            self.speeds = {"v100": 2}  # type: ignore[assignment]

    class OfClass(Seconds):
        speeds = None  # type: ignore[assignment]

    for model in (OfObject(), OfClass()):
        with pytest.raises(jo.UsageError, match=r"the method paces of Of.* is called speeds now, .*: rename") as caught:
            PolicySetting(jo.load_instance(DATA / "pair.json").cluster, model)  # type: ignore[arg-type]
        assert caught.value.problems[0].code == "wrong-type"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("executor.schedule", "LevelSchedule"),
        ("problem.shape", "Hold"),
        ("solvers.control", "Control"),
        ("solvers.explanation.phased", "PhaseTime"),
        ("solvers.resolve.failure_repair", "repaired"),
    ],
)
def test_modules_by_a_former_name_give_all_their_names(module: str, name: str) -> None:
    got: dict[str, Any] = {}
    with pytest.warns(FormerNameWarning):
        exec(f"from jigsaw_opt.{module} import *", got)
    names = {each for each in got if not each.startswith("__")}
    assert names == set(importlib.import_module(f"jigsaw_opt.{module}").__all__) and name in names


def test_former_keywords_of_data_classes_work_and_warn() -> None:
    operations = compile_instance(jo.load_instance(DATA / "pair.json"))
    interval: dict[str, Any] = {"initiation_interval_us": 2}
    others: dict[str, Any] = {one.name: 0 for one in fields(AsyncSchedule) if one.name not in interval}
    made: list[tuple[Callable[..., Any], dict[str, Any], str, str]] = [
        (jo.Options, {}, "robust", "survivable"),
        (jo.Options, {}, "workers", "threads"),
        (Relaxation, {"name": "mine", "bounds": tuple}, "shaped", "task_graphs"),
        (Timetable, {"jobs": ()}, "shaped", "task_graph_jobs"),
        (partial(replace, jo.Options()), {}, "robust", "survivable"),
        (partial(replace, jo.Options()), {}, "workers", "threads"),
        (partial(replace, Relaxation("mine", lambda *_: iter(()))), {}, "shaped", "task_graphs"),
        (partial(replace, operations), {}, "shaped", "task_graphs"),
        (partial(AsyncSchedule, **others), {}, "pace_us", "initiation_interval_us"),
        (partial(replace, AsyncSchedule(**interval, **others)), {}, "pace_us", "initiation_interval_us"),
    ]
    for make, needed, former, now in made:
        with pytest.warns(FormerNameWarning, match=f"the argument {former} of .* is called {now} now"):
            assert getattr(make(**needed, **{former: True}), now) is True
    with pytest.warns(FormerNameWarning), pytest.raises(jo.UsageError) as caught:
        jo.Options(robust=True, survivable=False)
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("not-together", "survivable")]


def test_the_command_line_says_which_plugin_uses_former_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jigsaw_opt.cli import main
    from jigsaw_opt.cli import solvers as command

    def run(arguments: object) -> int:
        importlib.import_module("jigsaw_opt.problem.clock").look()
        assert is_said(type("Mine", (), {"name": "mine", "promises": True}), "guarantees", "promises")
        return 0

    monkeypatch.setattr(command, "run", run)
    assert main(["solvers"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"warning: jigsaw_opt.problem.clock.look is check_deadline now ({__file__})",
        f"warning: the attribute promises of mine is called guarantees now ({__file__})",
    ]

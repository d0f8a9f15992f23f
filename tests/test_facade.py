"""What `import jigsaw_opt` offers: every name, loaded when used, typed for callers, silent, the same as underneath."""

from __future__ import annotations

import ast
import importlib
import logging
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import jigsaw_opt as jo
from jigsaw_opt.errors import MissingEngineError
from tests import typed_caller
from tests.modules import trees

DATA = Path(__file__).parent / "data"
PRINTING = {"system/keeper_process.py"}
"""Programs of their own, whose standard output somebody reads."""


def typed_names() -> dict[str, str]:
    """The names that a type checker sees, and the module of each."""
    imports = [node for node in ast.walk(trees()["__init__.py"]) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module or ""
        for node in imports
        for alias in node.names
        if (node.module or "").startswith("jigsaw_opt") and alias.asname in (None, alias.name)
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


def test_all_names_are_there_at_once_and_silent_without_an_extra() -> None:
    code = """
import logging, sys
sys.modules.update(dict.fromkeys(("torch", "ray", "matplotlib", "plotly", "topohub")))
from jigsaw_opt import *
assert picture and solve(instances.load("tiny/000"), "greedy").plan is not None
import jigsaw_opt
assert [type(handler) for handler in logging.getLogger("jigsaw_opt").handlers] == [logging.NullHandler]
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
        ("check", ("pair", None), "plan is a Plan, not None; load_plan(PATH) and the plan of a Result are one"),
        (
            "check_proof",
            ("pair", "p.json"),
            "proof is a BoundProof, not 'p.json'; load_proof(PATH) and the bound_proof",
        ),
        ("picture", ("pair", None), "plan is a Plan, not None; load_plan(PATH)"),
        ("add_job", ("a", None), "instance is an Instance, not 'a'; instances.load(NAME)"),
        ("save_instance", ("x.json", "pair"), "instance is an Instance, not 'x.json'; instances.load(NAME)"),
        ("placements_of", (None,), "plan is a Plan, not None; load_plan(PATH)"),
        ("simulate", ("day", None, "fifo"), "cluster is text, a Cluster or an Instance, not None"),
        ("Session", ("pair", "p.json"), "plan is a Plan, not 'p.json'; load_plan(PATH)"),
        ("LiveScheduler", ("2x4",), "cluster is a Cluster, not '2x4'; an Instance has one, and `cluster_in_words`"),
        ("partition", ("x.json", 4, [1, "a"]), "graph is a LayerGraph, not 'x.json'; `read_layers` of jigsaw_opt.docu"),
        ("fill", ("pair", "job0", {}), "foreground is a list of texts, not 'job0'\n  options is an Options"),
        ("explain", ("pair", "plan", "x"), "the plan has no job 'x'; there are"),
        ("Fix", ({"a": "s0/0"}, "4"), "placements['a'] is a list of texts, not 's0/0'\n  before_us is a whole number"),
        ("run_plan", ("pair",), "request is a ReplayRequest, not an Instance; as in ReplayRequest(instance"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_gives_one(
    name: str, arguments: tuple[Any, ...], told: str
) -> None:
    known = {"pair": jo.load_instance(DATA / "pair.json"), "plan": jo.load_plan(DATA / "pair.plan.json")}
    with pytest.raises(jo.UsageError) as caught:
        getattr(jo, name)(*(known[argument] if argument in ("pair", "plan") else argument for argument in arguments))
    assert str(caught.value).startswith(told)


def test_what_signatures_name_can_be_imported_from_the_front() -> None:
    wanted = {"Event", "Fix", "Instance", "Options", "Plan", "Problem", "Report", "Result", "Solver", "Violation"}
    assert wanted <= set(jo.__all__)
    assert len(jo.__all__) <= 80
    errors = importlib.import_module("jigsaw_opt.errors")
    raised = {name for name in errors.__all__ if name.endswith("Error")}
    assert all(issubclass(getattr(errors, name), jo.JigsawError) for name in raised)


def test_files_of_every_kind_are_read_by_one_name(tmp_path: Path) -> None:
    shop = tmp_path / "shop.txt"
    shop.write_text("2 2\n0 3 1 2\n1 4 0 1\n")
    assert isinstance(jo.read("jsplib", shop), jo.Instance)
    assert len(jo.read("csv", "week").jobs) == 300
    assert jo.read("slurm", DATA / "jobs.sacct.txt").jobs
    for kind, files, option in (("jsplob", [shop], {}), ("csv", [shop, shop], {}), ("philly", [shop], {"to": "model"})):
        with pytest.raises(jo.UsageError):
            jo.read(kind, *files, **option)  # type: ignore[call-overload]


def test_nothing_but_the_command_line_prints() -> None:
    printing = {
        path
        for path, tree in trees().items()
        if not path.startswith("cli/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == PRINTING


def test_the_command_line_shows_what_is_logged_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from jigsaw_opt.cli import main
    from jigsaw_opt.cli.inputs import solvers as command

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

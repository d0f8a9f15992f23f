"""Packages of others whose code does not load, or raises."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.problem import depth
from jigsaw_opt.solvers.bounds import registry as bounds
from jigsaw_opt.system import plugins
from tests.installed import installed
from tests.refusals import ends

TOLD = "of package others does not load: ValueError: a bug"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an entry point whose module raises, for a group to be registered in."""
    (tmp_path / "broken_by_others.py").write_text("raise ValueError('a bug')\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._warn.cache_clear()
    return "broken_by_others:IT"


def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, point: str) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, f"jigsaw_opt.{group}", {"aaa": point}))


@pytest.mark.parametrize(
    ("group", "kind", "given", "listed"),
    [
        ("solvers", "solver", ["solvers"], "greedy"),
        ("policies", "policy", ["solvers", "--policies"], "fifo"),
        ("depth_rules", "depth rule", ["schema", "instance"], "staircase"),
    ],
)
def test_a_list_leaves_out_what_does_not_load_and_says_so(
    group: str,
    kind: str,
    given: list[str],
    listed: str,
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    register(tmp_path, monkeypatch, group, broken)
    depth.plugins.cache_clear()
    try:
        assert main(given) == 0
    finally:
        depth.plugins.cache_clear()
    printed = capsys.readouterr()
    assert listed in printed.out and "aaa" not in printed.out
    assert printed.err.splitlines() == [f"warning: {kind} 'aaa' {TOLD}"]


def test_a_solver_that_does_not_load_is_one_error_where_it_is_named(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register(tmp_path, monkeypatch, "solvers", broken)
    assert main(["solve", "tiny/000", "--solver", "greedy", "-q"]) == 0
    assert not capsys.readouterr().err
    assert main(["solve", "tiny/000", "--solver", "aaa"]) == 1
    assert capsys.readouterr().err.splitlines() == [f"error: solver 'aaa' {TOLD}"]


def test_an_exception_of_a_registered_solver_is_told_as_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "class Raising:",
        "    name = display_name = 'raising'",
        "    def unavailable(self): return None",
        "    def unsupported(self, instance): return None",
        "    def run(self, control): raise ValueError('no such order')",
        "IT = Raising()",
    )
    (tmp_path / "raising_solver.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(installed(tmp_path, "jigsaw_opt.solvers", {"raising": "raising_solver:IT"}))
    assert main(["solve", "tiny/000", "--solver", "raising"]) == 1
    assert capsys.readouterr().err.splitlines() == ["error: the solver 'raising' raised ValueError: no such order"]


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ("pathlib:Path", "is the class Path; an object of it is wanted"),
        ("math:pi", "is no solver: it has no name, display_name, unavailable, unsupported, run"),
    ],
)
def test_what_is_no_solver_is_left_out_and_refused(
    point: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins._warn.cache_clear()
    register(tmp_path, monkeypatch, "solvers", point)
    assert main(["solvers"]) == 0
    printed = capsys.readouterr()
    assert "greedy" in printed.out and printed.err.splitlines() == [f"warning: solver 'aaa' {told}"]
    assert main(["solve", "tiny/000", "--solver", "aaa"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: solver 'aaa' {told}"]


def test_bounds_that_do_not_load_are_left_out(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register(tmp_path, monkeypatch, "bounds", broken)
    bounds._everything.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "jigsaw_opt"):
            assert "gpu_work" in bounds.names()
    finally:
        bounds._everything.cache_clear()
    assert caplog.messages == [f"bound 'aaa' {TOLD}"]


def test_a_policy_of_another_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace.csv").write_text(
        "name,submit_s,model,gpus,iterations\nlong,0,net,8,500\nwide,10,net,8,400\nsmall,20,net,1,30\n"
    )
    command = ("simulate", "--workload", tmp_path / "trace.csv", "--cluster", "2x4", "--policy", "aaa", "-o")
    ends("2: unknown-name policy", *command, tmp_path / "out")
    register(tmp_path, monkeypatch, "policies", "examples.own_policy:SMALLEST")
    assert main([str(word) for word in (*command, tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["unfinished"] == 0

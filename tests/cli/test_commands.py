"""The commands as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.documents import load_plan
from tests.extras import needs_plot


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("solver", ["greedy", "cpsat", "ilp", "auto"])
def test_solve_writes_a_plan_that_checks(
    solver: str, pair_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert run("solve", pair_path, "--solver", solver, "--threads", 1, "-o", plan, "--timeline") == 0
    printed = capsys.readouterr().out
    assert "objective" in printed and "s0/1 |" in printed
    assert re.search("^proof: .* 1800 ", printed, re.MULTILINE) or solver == "greedy"
    assert run("check", pair_path, plan) == 0
    assert load_plan(plan).objective == 1800 or solver == "greedy"


def test_solve_as_json_keeps_data_and_progress_apart(pair_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", pair_path, "--solver", "cpsat", "--threads", 1, "--json", "-v") == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    found = [result[key] for key in ("status", "stopped_by", "objective", "bound", "seed", "threads")]
    assert found == ["optimal", "proof", 1800, 1800, 0, 1] and result["hardware"].endswith("cores")
    assert result["trajectory"][-1]["objective"] == 1800
    assert result["proof"]["sentence"] == result["bound_reason"]
    assert (result["proof"]["relaxation"], result["proof"]["jobs"]) == ("worker_packing", ["b", "a"])
    assert "objective 1800" in printed.err


@pytest.mark.parametrize("solver", ["cpsat", "auto"])
def test_solve_says_that_the_exact_model_is_too_large(
    solver: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ortools")
    monkeypatch.setattr("jigsaw_opt.solvers.cpsat.search._MOST_INTERVALS", 10)
    verbose = ["-v"] if solver == "auto" else []
    arguments = ("solve", "server/demo", "--solver", solver, "--threads", 1, "--work-limit", 0.1, "--json", *verbose)
    assert run(*arguments) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    reason = result["exact_model"]["reason"]
    assert (result["stopped_by"] == "model_too_large") is (solver == "cpsat")
    assert result["exact_model"]["built"] is False and "at most 10" in reason
    [line] = [line for line in printed.err.splitlines() if reason in line]
    assert result["solver"] in line


def test_instances_lists_best_known_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("instances", "tiny", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) >= 60
    assert all(row["best"] == row["bound"] and row["gap"] == 0.0 for row in rows)
    row = rows[42]
    assert run("check", row["name"], row["plan"]) == 0
    assert run("check", row["name"], "--proof", row["proof"]) == 0 and row["certified_bound"] == row["bound"]
    assert {"solver", "version", "seed", "threads", "seconds", "date", "hardware", "by"} == set(row["found"])
    assert row["proved"]["solver"]
    assert run("instances", "none-such") == 2
    assert run("instances", "tiny") == 0
    told = capsys.readouterr().out
    assert "0.00 %" in told and "certified optimal" in told


def test_plot_and_export(
    pair_path: Path, pair_plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plot", pair_path, pair_plan_path, "-o", tmp_path / "p.html") == 0
    assert (tmp_path / "p.html").stat().st_size > 1000
    assert run("plot", pair_path, pair_plan_path) == 0
    assert "jobs: A = a" in capsys.readouterr().out
    assert run("export", pair_path, pair_plan_path, "--to", "perfetto", "-o", tmp_path / "p.json") == 0
    assert json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    for form in ("mps", "lp"):
        assert run("export", pair_path, "--to", form, "-o", tmp_path / f"p.{form}") == 0
        assert (tmp_path / f"p.{form}").stat().st_size > 500
    assert run("export", pair_path, "--to", "perfetto", "-o", tmp_path / "q.json") == 2


def test_help_names_every_command_and_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    for command in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            run(command, "--help")
        assert command in printed and capsys.readouterr().out.startswith(f"usage: jigsaw {command}")


@needs_plot
def test_plot_as_png(pair_path: Path, pair_plan_path: Path, tmp_path: Path) -> None:
    assert run("plot", pair_path, pair_plan_path, "-o", tmp_path / "p.png") == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

"""`jigsaw solve --warm`: an old plan as the start, parts of it fixed, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_plan

pytest.importorskip("ortools")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def old(pair_path: Path, tmp_path: Path) -> Path:
    plan = tmp_path / "old.json"
    assert run("solve", pair_path, "--solver", "greedy", "-o", plan) == 0
    return plan


def test_one_more_job_with_what_has_started_fixed(pair_path: Path, old: Path, tmp_path: Path) -> None:
    tree = json.loads(pair_path.read_text())
    tree["jobs"].append({"name": "c", "model": "net", "workers": 1, "iterations": 1})
    changed, new = tmp_path / "changed.json", tmp_path / "new.json"
    changed.write_text(json.dumps(tree))
    assert run("solve", changed, "--warm", old, "--fix-placement", "a", "b", "--fix-before", 10, "-o", new) == 0
    assert run("check", changed, new) == 0
    places = {job.name: job.gpus for job in load_plan(new).jobs}
    assert all(places[job.name] == job.gpus for job in load_plan(old).jobs)
    assert set(places) == {"a", "b", "c"}


def test_wrong_use(pair_path: Path, old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("solve", pair_path, "--fix-before", 5) == 2
    assert run("solve", pair_path, "--warm", old, "--solver", "greedy", "--fix-before", 5) == 2
    assert run("solve", pair_path, "--warm", old, "--fix-placement", "x", "y") == 3
    shown = capsys.readouterr().err
    assert '"x"' in shown and '"y"' in shown

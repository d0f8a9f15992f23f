"""`jigsaw leaderboard` as a user calls it, on what `jigsaw bench` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import schema
from jigsaw_opt.instances import best_known


def test_runs_of_bench_are_ranked_with_those_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other = tmp_path / "bench", tmp_path / "other.jsonl"
    asked = ["bench", "tiny/000", "--solvers", "greedy", "--threads", "1", "--work-limit", "2", "-o", str(folder)]
    assert main(asked) == 0
    row = json.loads((folder / "rows.jsonl").read_text())
    jsonschema.validate(row, schema("result"))
    other.write_text(json.dumps({**row, "solver": "x|y", "version": "7", "objective": 10**9}) + "\n")
    capsys.readouterr()
    assert main(["leaderboard", str(folder), str(other), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(standing["rank"], standing["contestant"]["solver"]) for standing in told["standings"]] == [
        (1, "greedy"),
        (2, "x|y"),
    ]
    assert told["standings"][0]["contestant"]["hardware"].endswith("cores")
    page = tmp_path / "board.md"
    assert main(["leaderboard", str(folder), str(other), "-o", str(page)]) == 0
    assert "| 2 | 2 units | x\\|y | 7 |" in page.read_text()
    capsys.readouterr()
    assert main(["leaderboard", str(folder)]) == 0
    printed = capsys.readouterr()
    assert "greedy" in printed.out and "bundled plan" not in printed.err


def test_a_best_value_that_no_bundled_plan_shows_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = best_known("pod/weighted")
    assert best is not None and best.objective is not None
    results, page = tmp_path / "results.jsonl", tmp_path / "board.md"
    row = {"instance_sha256": best.instance_sha256, "solver": "a", "objective": best.objective - 1}
    results.write_text(json.dumps(row) + "\n")
    assert main(["leaderboard", str(results), "-o", str(page)]) == 0
    assert "no bundled plan shows the best value of: pod/weighted" in capsys.readouterr().err
    assert "No bundled plan shows the best value of pod/weighted." in page.read_text()


def test_wrong_files_are_exit_code_3_and_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, page = tmp_path / "wrong.jsonl", tmp_path / "board.md"
    wrong.write_text('{"solver": "a"}\n[]\n')
    assert main(["leaderboard", str(wrong), "-o", str(page)]) == 3
    told = capsys.readouterr().err
    assert f"{wrong}:1: missing key" in told and f"{wrong}:2" in told
    assert not page.exists()

"""What benchmarks share, and the table of answers of other systems."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import common
import pytest

from tests.pages import ROOT, section


def test_measured_data_are_found_or_the_message_says_where_they_would_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JIGSAW_SHARED", str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        common.shared("pipeline", "none.json")
    said = capsys.readouterr().err
    assert said == f"no {tmp_path}/data/pipeline/none.json; JIGSAW_SHARED says where data/ is\n"
    (tmp_path / "data/pipeline").mkdir(parents=True)
    assert common.shared("pipeline") == tmp_path / "data" / "pipeline"


def test_seconds_are_those_of_the_call_and_of_its_children() -> None:
    busy = "sum(k * k for k in range(300_000))"
    assert common.timed(lambda: 7)[0] == 7
    done, seconds = common.timed(lambda: subprocess.run([sys.executable, "-c", busy], check=True))
    assert done.returncode == 0
    assert seconds > 0.003


def test_a_table_grows_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(("name", "value"), iter([("a", 1), ["b", None]]))
    assert capsys.readouterr().out == "| name | value |\n|---|---|\n| a | 1 |\n| b | None |\n"


def test_the_page_lists_every_script_and_no_other() -> None:
    folder = ROOT / "benchmarks"
    scripts = {path.name for path in folder.glob("*.py") if "__main__" in path.read_text()} | {"peers/compare.py"}
    table = section((ROOT / "docs/bench.md").read_text(), "Scripts")
    assert set(re.findall(r"[`\[]`?([\w/]+\.py)", table)) == scripts


@pytest.mark.parametrize("name", ["gavel_lps", "muri_groups", "pipedream", "sia_round"])
def test_tables_of_answers_print_nothing_without_the_data(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JIGSAW_SHARED", str(tmp_path))
    table, parser = import_module(f"references.{name}"), argparse.ArgumentParser()
    table.add_arguments(parser)
    with pytest.raises(SystemExit, match="2"):
        table.rows(parser.parse_args([]))
    assert "JIGSAW_SHARED" in capsys.readouterr().err


def test_a_row_of_groups_of_a_file(tmp_path: Path) -> None:
    table, parser = import_module("references.muri_groups"), argparse.ArgumentParser()
    job = {"num_gpu": 1, "resource_time": [0.1, 0.2, 0.1], "iteration_time": 0.4}
    case = {"jobs": [job] * 2, "gpus": 1, "groups": [[0, 1]], "ref": {"sum_norm_throughput": 1.5, "cpu": 0.25}}
    path = tmp_path / "two.json"
    path.write_text(json.dumps(case))
    table.add_arguments(parser)
    (row,) = table.rows(parser.parse_args([str(path)]))
    assert len(row) == len(table.HEADS)
    assert row[:4] == ("two", 2, 1, "1.500")
    assert row[5:7] == row[6:8]

"""What benchmarks share, and the table of answers of other systems."""

from __future__ import annotations

import argparse
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
    done, seconds = common.timed(lambda: subprocess.run([sys.executable, "-c", busy], check=True))
    assert done.returncode == 0
    assert seconds > 0.003


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

"""`export` of programs that are too large, that take long, and that are interrupted."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.cli.plans import export
from jigsaw_opt.formulations.ilp_timetable import program_size
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.problem import compile_instance
from tests.refusals import ends

pytest.importorskip("pulp")


def run(*arguments: object) -> int:
    return main(["export", *map(str, arguments)])


def test_a_program_above_the_limit_is_refused_with_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends("2: too-large most_coefficients", "export", "pod/plain", "--to", "mps", "-o", tmp_path / "x")
    assert "5,000,000" in capsys.readouterr().err
    output, size = tmp_path / "x", program_size(compile_instance(load("server/demo")))
    most = size.coefficients
    command = ("export", "server/demo", "--to", "lp", "-o", output, "--max-coefficients", most - 1)
    ends("2: too-large most_coefficients", *command)
    told = capsys.readouterr().err
    assert all(f"{column:,}" in told for column in (size.columns, size.rows, most, most - 1))
    assert "--max-coefficients" in told and "MB" in told
    assert not output.exists()
    assert run("server/demo", "--to", "lp", "-o", output, "--max-coefficients", most) == 0
    assert output.stat().st_size > 0


def test_a_long_export_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "_SECONDS_BETWEEN_NOTES", 0.0)
    rows = program_size(compile_instance(load("server/demo"))).rows
    assert run("server/demo", "--to", "mps", "-o", tmp_path / "x") == 0
    told = capsys.readouterr().err
    counts = [re.findall(r"[\d,]{5,}", line) for line in told.splitlines()]
    assert ["1,000", f"{rows:,}"] in counts and ["4,062"] in counts


def test_an_interrupted_export_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(rows: int, most: int) -> None:
        if rows == 500:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(export, "_progress", lambda: interrupt)
    assert run("server/demo", "--to", "mps", "-o", tmp_path / "x.mps") == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

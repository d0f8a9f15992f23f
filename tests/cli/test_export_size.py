"""`export` of programs that are too large, that take long, and that are interrupted."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.cli.plans import export
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.solvers.ilp.solver import exported_model
from tests.refusals import carries, ends

pytest.importorskip("pulp")


def run(*arguments: object) -> int:
    return main(["export", *map(str, arguments)])


def test_a_program_above_the_limit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends("2: too-large most_coefficients", "export", "pod/plain", "--to", "mps", "-o", tmp_path / "x")
    assert "5,000,000" in capsys.readouterr().err
    output, most = tmp_path / "x", len(exported_model(load("server/demo")).program.program().values)
    command = ("export", "server/demo", "--to", "mps", "-o", output, "--max-coefficients")
    ends("2: too-large most_coefficients", *command, most - 1)
    assert carries(capsys.readouterr().err, f"{most - 1:,}", "--max-coefficients")
    assert not output.exists()
    assert main([*map(str, command), str(most)]) == 0
    assert output.stat().st_size > 0


def test_a_long_export_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "_SECONDS_BETWEEN_NOTES", 0.0)
    assert run("server/demo", "--to", "mps", "-o", tmp_path / "x") == 0
    told = capsys.readouterr().err
    counts = [re.findall(r"[\d,]{5,}", line) for line in told.splitlines()]
    assert ["1,000"] in counts and ["4,047"] in counts


def test_an_interrupted_export_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(rows: int, complete: bool) -> None:
        if rows == 500:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(export, "_progress", lambda: interrupt)
    assert run("server/demo", "--to", "mps", "-o", tmp_path / "x.mps") == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

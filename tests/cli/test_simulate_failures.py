"""`jigsaw simulate --failures`: events of a file, drawn ones, an interrupt between them, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from tests.cli.test_simulate import interrupt_at_take
from tests.refusals import ends


def simulate(trace: Path, folder: Path, failures: str, *more: str) -> int:
    words = ("--workload", str(trace), "--cluster", "2x4", "--policy", "srtf", "--failures", failures)
    return main(["simulate", *words, "-o", str(folder), *more])


@pytest.fixture
def long_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    lines = (f"j{k},{37 * k % 900},m,{1 + k % 8},{1 + 7919 * k % 3000}" for k in range(40))
    path.write_text("\n".join(["name,submit_s,model,gpus,iterations", *lines]) + "\n")
    return path


def test_a_failure_of_a_file_stops_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, events = tmp_path / "trace.csv", tmp_path / "events.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,m,4,1000\n")
    events.write_text("time_s,kind,name,state\n500,server,s0,down\n")
    assert simulate(trace, tmp_path / "out", f"{events},checkpoint=200", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    # Saved at 430 s with 400 s of work; from the round at 540 s on the other server, ready at 570 s.
    assert printed["makespan_h"] == pytest.approx((570 + 600) / 3600)
    assert printed["failure_stops"] == 1
    assert printed["lost_gpu_hours"] == pytest.approx(4 * 70 / 3600)
    assert printed["availability"] == pytest.approx(1 - 4 * (1170 - 500) / (8 * 1170))
    head, line = (tmp_path / "out" / "jobs.csv").read_text().splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["failure_stops"], row["lost_gpu_s"]) == ("1", "280.000000")


def test_an_interrupt_between_failures_changes_nothing(
    long_trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = "mtbf=0.5,mttr=0.1,links=1,checkpoint=120"
    assert simulate(long_trace, tmp_path / "whole", drawn) == 0
    interrupt_at_take(45, monkeypatch)
    assert simulate(long_trace, tmp_path / "cut", drawn) == 130
    assert simulate(long_trace, tmp_path / "cut", f"{drawn}0", "--resume") == 3
    assert simulate(long_trace, tmp_path / "cut", drawn, "--resume") == 0
    assert (tmp_path / "cut" / "jobs.csv").read_bytes() == (tmp_path / "whole" / "jobs.csv").read_bytes()
    assert json.loads((tmp_path / "whole" / "summary.json").read_text())["failure_stops"] > 5


def test_failures_that_make_no_sense(long_trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", "--workload", long_trace, "--cluster", "2x4", "--policy", "srtf", "-o", tmp_path / "out")
    ends(
        "2: out-of-range failures; unknown-option failures; missing-option failures",
        *command,
        "--failures",
        "mtbf=0,mtr=1",
    )
    lines = capsys.readouterr().err.splitlines()
    assert "'mtbf'" in lines[0] and "'mttr'" in lines[1]
    ends(f"3: unreadable {tmp_path / 'none.csv'}", *command, "--failures", tmp_path / "none.csv")
    assert not (tmp_path / "out").exists()

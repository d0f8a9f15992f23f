"""Where the time of the jobs of a simulation went, as `jigsaw explain FOLDER` says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.simulation.results.job_times import job_times
from tests.refusals import carries

SECOND = 10**6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,m,8,200\n=b,60,m,8,10\nc,60,m,1,5\nd,120,m,4,20\n")
    arguments = ["--workload", str(trace), "--cluster", "2x4", "--policy", "srtf", "--round", "60", "--restart", "30"]
    assert main(["simulate", *arguments, "-o", str(out)]) == 0
    return out


def test_times_add_up(folder: Path) -> None:
    times = {times.job: times for times in job_times(folder)}
    with (folder / "jobs.csv").open(newline="") as file:
        completion = {row["name"]: round(float(row["completion_s"]) * SECOND) for row in csv.DictReader(file)}
    assert {job: time.completion_us for job, time in times.items()} == {
        "a": completion["a"],
        "=b": completion["'=b"],
        "c": completion["c"],
        "d": completion["d"],
    }
    # The long one is put aside for the others, and starts anew behind them.
    assert times["a"].queued_us == 0 and times["a"].paused_us > 0
    assert times["a"].slower_us == 30 * SECOND * (1 + times["a"].restarts)
    assert sum(time.queued_us for time in times.values()) > 0


def test_the_command_tells_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["explain", str(folder), "c", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["job"] == "c" and job["alone_us"] == 5 * SECOND
    assert job["completion_us"] == job["queued_us"] + job["running_us"] + job["paused_us"]
    assert main(["explain", str(folder)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["job", "a"]
    assert main(["explain", str(folder), "e"]) == 2
    assert "ended: a, =b, c, d" in capsys.readouterr().err
    assert main(["explain", str(folder), "=bb"]) == 2
    assert carries(capsys.readouterr().err, "mean", "'=b'")
    assert main(["explain", str(folder), "a", "b"]) == 2
    assert main(["explain", "rack/plain"]) == 2
    assert carries(capsys.readouterr().err, "plan", "missing")


def test_a_table_that_is_wrong_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "jobs.csv"
    text = table.read_text()
    capsys.readouterr()
    table.write_text(text.replace("held_s", "held"))
    assert main(["explain", str(folder)]) == 3
    assert carries(capsys.readouterr().err, "column", "'held_s'")
    head, first, *rest = text.splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    wrong = first.replace(f"{cells['gpu_s']},{cells['held_s']}", f"{cells['gpu_s']},1{cells['held_s']}")
    assert wrong != first
    table.write_text("\n".join([head, wrong, *rest]))
    assert main(["explain", str(folder)]) == 3
    assert carries(capsys.readouterr().err, "times", "cannot")

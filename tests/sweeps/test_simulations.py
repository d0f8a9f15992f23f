"""Sweeps of simulations: tasks, rows and means; advice on two types of GPU against a program that shares no code."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from statistics import fmean, median

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents.readers.table import Accept
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.simulation.inputs.request import SimulationRequest
from jigsaw_opt.simulation.inputs.workload_changes import read_workload
from jigsaw_opt.sweeps.assumptions import assumed_in_sweep
from jigsaw_opt.sweeps.calls import simulate_all
from jigsaw_opt.sweeps.simulations import cells, is_row, measure, rows_csv, simulations
from tests.refusals import ends
from tests.simulation.test_mixed_types import fifo_by_type


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    paths = []
    for name, seconds in (("short", 60), ("long", 600)):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"name,submit_s,model,gpus,iterations\na,0,m,8,{seconds}\nb,0,m,8,{2 * seconds}\n")
        paths.append(str(path))
    return paths


def test_every_combination_is_a_task_of_its_own(traces: list[str]) -> None:
    tasks = simulations(SimulationRequest("", "2x4"), traces, ["fifo", "srtf"], [0, 1])
    assert len({task.key for task in tasks}) == len(tasks) == 8
    assert [task.labels["policy"] for task in tasks[:4]] == ["fifo", "fifo", "srtf", "srtf"]
    again = simulations(SimulationRequest("", "2x4"), traces, ["fifo", "fifo"], [0, 0])
    assert [task.key for task in again] == [tasks[0].key, tasks[4].key]


def test_a_row_has_the_measures_or_an_error(traces: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = simulations(SimulationRequest("", "2x4", restart_s=0), traces[:1], ["fifo"], [0])
    assert measure(*task.arguments)["mean_completion_h"] == (60 + 180) / 2 / 3600

    def failing(*_: object) -> None:
        raise UsageError("told")

    monkeypatch.setattr("jigsaw_opt.simulation.engine.simulation.Simulation.run", failing)
    row = measure(*task.arguments)
    assert row["error"] == "told"
    assert "mean_completion_h" not in row


def test_means_are_over_the_seeds_that_gave_a_result() -> None:
    labels = {"workload": "w", "policy": "p", "error": None}
    rows = [
        {**labels, "seed": 0, "jobs": 3, "mean_completion_h": 1.0, "worst_fairness": None},
        {**labels, "seed": 1, "jobs": 3, "mean_completion_h": 3.0, "worst_fairness": None},
        {**labels, "seed": 2, "error": "died"},
        {**labels, "policy": "q", "seed": 0, "error": "died"},
    ]
    assert cells(rows) == [
        {"workload": "w", "policy": "p", "runs": 3, "errors": 1, "jobs": 3.0, "mean_completion_h": 2.0},
        {"workload": "w", "policy": "q", "runs": 1, "errors": 1},
    ]
    table = list(csv.DictReader(io.StringIO(rows_csv(rows))))
    assert [row["seed"] for row in table] == ["0", "1", "2", "0"]
    assert [row["error"] for row in table] == ["", "", "died", "died"]


def test_the_command_goes_on_where_it_was(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["simulate", "--sweep", "--cluster", "2x4", "-o", str(out), "--restart", "0", "--json", "--workload"]
    assert main([*command, traces[0], "--policy", "fifo"]) == 0
    first = (out / "rows.jsonl").read_text()
    assert main([*command, *traces, "--policy", "fifo"]) == 0
    assert (out / "rows.jsonl").read_text().startswith(first)
    document = json.loads((out / "summary.json").read_text())
    assert (document["runs"], document["finished"]) == (2, 2)
    assert [cell["mean_completion_h"] for cell in document["cells"]] == [120 / 3600, 1200 / 3600]
    capsys.readouterr()
    for more in (["--until", "1"], ["--resume"], ["--seeds", "a"], ["--jobs", "0"]):
        assert main([*command, traces[0], "--policy", "fifo", *more]) == 2
    words = ("simulate", "--cluster", "2x4", "-o", out, "--workload", *traces, "--policy", "fifo")
    ends("2: missing-option --sweep", *words)


def test_the_call_goes_on_where_it_was(traces: list[str], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    for policies, rows in ((["fifo"], [(1, 2), (2, 2)]), (["fifo", "las"], [(3, 4), (4, 4)])):
        seen.clear()
        found = simulate_all(
            traces, "2x4", policies, folder=tmp_path / "out", report=lambda _row, *counts: seen.append(counts)
        )
        assert seen == rows
    assert [row["policy"] for row in found.rows] == ["fifo", "las"] * 2
    assert found.summary["finished"] == 4 and dict(found.assumed)["seeds"].startswith("0 alone")


def test_settings_that_differ_by_the_policy_alone_are_read_once(
    traces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(given: str, columns: str, accept: Accept) -> Workload:
        read.append(given)
        return read_workload(given, columns, accept)

    monkeypatch.setattr("jigsaw_opt.simulation.inputs.request.read_workload", reading)
    assert len(simulations(SimulationRequest("", "2x4"), traces, ["fifo", "las", "srtf"], [0, 1])) == 12
    assert read == [name for name in traces for _ in range(2)]


def test_everything_wrong_with_any_combination_is_told_once_and_nothing_is_written(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, missing, out = tmp_path / "bad.csv", tmp_path / "missing.csv", tmp_path / "out"
    bad.write_text("name,submit_s,model,gpus,iterations\na,-5,m,1,10\nb,0,m,99,10\n")
    wrong = ["--workload", traces[0], str(bad), str(missing), "--policy", "fifo", "fifoo", "las:placement=paked"]
    command = ["simulate", "--sweep", "--seeds", "0,1", "-o", str(out), *wrong]
    policies = [
        "  policy: no policy 'fifoo'; did you mean 'fifo'?",
        "  policy: 'placement' of policy 'las' is not 'paked'; did you mean 'packed'?",
    ]
    files = [f"  {bad}:2: submit_s is negative: -5", f"  {missing}: cannot be read: No such file or directory"]
    assert main([*command, "--cluster", "2x4"]) == 3
    too_large = f"  {bad}:3: job 'b' needs 99 GPUs and the cluster has 8; --too-wide skip leaves such jobs out"
    assert capsys.readouterr().err.splitlines() == ["error: 5 problems", *policies, files[0], too_large, files[1]]
    # Without a cluster nobody knows whether jobs fit on it; what is wrong with a trace by itself is still told.
    assert main([*command, "--cluster", "0x4"]) == 3
    cluster = "  cluster: a cluster has between 1 and 1000000 GPUs, not 0"
    assert capsys.readouterr().err.splitlines() == ["error: 5 problems", cluster, *policies, *files]
    assert main([*command, "--cluster", "0x4", "--round", "-1", "--restart", "nan"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: the round is a number of seconds of at least 0, not -1.0",
        "  the restart is a number of seconds of at least 0, not nan",
    ]
    assert not out.exists()


def test_wrong_names_alone_are_a_wrong_call(
    traces: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["--policy", "fifoo", "fifo", "--contention", "rude", "--performance", "guess", "--cluster", "2x4"]
    assert main(["simulate", "--sweep", "--workload", *traces, "-o", str(tmp_path / "out"), *names]) == 2
    told = capsys.readouterr().err
    for part in (
        "policy: no policy 'fifoo'",
        "contention: no contention 'rude'",
        "performance: no performance 'guess'",
    ):
        assert told.count(part) == 1
    assert not (tmp_path / "out").exists()


def test_rows_that_means_cannot_be_taken_of_are_refused(traces: list[str], tmp_path: Path) -> None:
    (task,) = simulations(SimulationRequest("", "2x4"), traces[:1], ["fifo"], [0])
    good = {"key": task.key, "error": None, **measure(*task.arguments)}
    assert is_row(good) and is_row({"key": "a", "error": "failed"})
    assert not is_row({"key": "a", "error": None})
    assert not is_row({**good, "makespan_h": [1]})
    assert not is_row({**good, "makespan_h": 10**400})
    assert not is_row({**good, "error": 1})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows.jsonl").write_text(json.dumps({**good, "restarts": {"deep": []}}) + "\n")
    arguments = ["--workload", traces[0], "--cluster", "2x4", "--policy", "fifo", "-o", str(tmp_path / "out")]
    assert main(["simulate", "--sweep", *arguments]) == 3


def test_what_a_sweep_rests_on_is_told_once(traces: list[str]) -> None:
    tasks = simulations(SimulationRequest("", "1x8"), traces, ["fifo", "srtf"], [0, 1])
    rows = [{**task.labels, "error": None, "makespan_h": 1.0} for task in tasks]
    told = [*assumed_in_sweep(tasks, rows)]
    assert [text for name, text in told if name == "workload"] == [
        f"{trace}: 2 jobs, submitted within 0 h" for trace in traces
    ]
    assert [name for name, _ in told].count("cluster") == 1
    assert "8 GPUs on 1 server" in dict(told)["cluster"] and "change nothing" in dict(told)["seeds"]
    assert dict(told)["known lengths"].startswith("srtf orders jobs")


NODES = "NODELIST|GRES\nn1|gpu:a100:8(S:0-1)\nn2|gpu:v100:4\nn3|gpu:v100:4\nlogin|(null)\n"


def dump(seed: int) -> str:
    """Jobs of one to eight GPUs; most name their type, and the others ran on either."""
    draw, first = random.Random(seed), datetime(2026, 3, 2, 8)
    lines, now = ["JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|User"], 0
    for k in range(60):
        now += draw.randrange(200, 2000)
        kind, gpus = draw.choice(("a100", "v100")), draw.choice((1, 1, 2, 4, 8))
        asked = f"cpu=8,gres/gpu={gpus}" + (f",gres/gpu:{kind}={gpus}" if draw.random() < 0.7 else "")
        start, length = now + draw.randrange(1800), draw.randrange(300, 7200)
        times = "|".join((first + timedelta(seconds=s)).isoformat() for s in (now, start, start + length))
        elapsed = f"{length // 3600:02}:{length // 60 % 60:02}:{length % 60:02}"
        lines.append(f"{k}|COMPLETED|{times}|{elapsed}|cpu=8,gres/gpu={gpus},gres/gpu:{kind}={gpus}|{asked}|u{k % 5}")
    return "\n".join(lines) + "\n"


def three_figures(sacct: str) -> tuple[float, float, float]:
    """Mean and median wait of the record, and the mean wait under FIFO by type, in hours."""
    speeds, waits, jobs = {"a100": Fraction(1), "v100": Fraction("0.43")}, [], []
    for line in sacct.splitlines()[1:]:
        _, _, *times, _, got, asked, _ = line.split("|")
        submit, start, end = (Fraction(datetime.fromisoformat(text).timestamp()) for text in times)
        (ran_on,) = (name for name in speeds if f"gpu:{name}=" in got)
        may = [name for name in speeds if f"gpu:{name}=" in asked] or list(speeds)
        jobs.append((submit, end - start, int(asked.split("gres/gpu=")[1].split(",")[0]), ran_on, may))
        waits.append(start - submit)
    starts, _ = fifo_by_type(jobs, speeds, {"a100": 8, "v100": 8})
    simulated = [start - job[0] for start, job in zip(starts, jobs, strict=True)]
    return tuple(float(seconds) / 3600 for seconds in (fmean(waits), median(waits), fmean(simulated)))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_first_three_figures_are_those_of_another_program(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sacct, nodes = tmp_path / "sacct.txt", tmp_path / "nodes.txt"
    sacct.write_text(dump(seed))
    nodes.write_text(NODES)
    words = ["advise", f"slurm:{sacct}", "--cluster", f"sinfo:{nodes}", "--policy", "fifo", "srtf", "--seeds", "0"]
    words += ["--round", "0", "--restart", "0", "--speeds", "a100=1,v100=0.43", "-o", str(tmp_path / "out"), "-q"]
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr()
    told = json.loads(out.out)
    mean, middle, fifo = three_figures(sacct.read_text())
    figures = re.findall(r"fifo|[\d.]+ h\b", told["calibration"])
    assert figures[:4] == [f"{mean:.4g} h", f"{middle:.4g} h", "fifo", f"{fifo:.4g} h"]
    assert told["today"] == "recorded" and fifo > 0
    assert "no type of GPU" in out.err
    speeds = told["assumed"]["speeds of GPUs"]
    assert speeds.startswith("a100 1, v100 0.43 ") and "60 jobs" in speeds

"""`jigsaw simulate` as a user calls it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.cli.common.parser import parser_of
from jigsaw_opt.documents import load_instance
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policies import fifo
from jigsaw_opt.scheduling.policy import Stateless
from jigsaw_opt.views import simulation_report
from tests.refusals import ends

RESULTS = ["jobs.csv", "report.html", "rounds.csv", "summary.json"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("name,submit_s,model,gpus,iterations\na,5,m,2,100\nb,20,m,8,300\nc,30,m,1,10\n")
    return path


def simulate(trace: Path, folder: Path, *more: str) -> int:
    return main(["simulate", "--workload", str(trace), "--cluster", "2x4", "-o", str(folder), *more])


def test_results_are_written_and_printed(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(trace, tmp_path / "out", "--policy", "fifo", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert printed["policy"] == "fifo"
    assert (printed["jobs"], printed["unfinished"]) == (3, 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == RESULTS
    assert simulate(trace, tmp_path / "out", "--policy", "las:placement=packed", "--force") == 0
    assert "mean_completion_h" in capsys.readouterr().out


def test_a_bad_trace_lists_everything_and_writes_nothing(
    tmp_path: Path, pair_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("name,submit_s,model,gpus,iterations\na,-5,net,1,10\nb,0,nit,99,10\n")
    arguments = ["--workload", str(bad), "--policy", "fifo", "-o", str(tmp_path / "out")]
    assert main(["simulate", "--cluster", str(pair_path), *arguments]) == 3
    count = load_instance(pair_path).cluster.gpu_count
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  {bad}:2: submit_s is negative: -5",
        f"  {bad}:3: job 'b' needs 99 GPUs and the cluster has {count}; --too-wide skip leaves such jobs out",
        f"  {bad}:3: no model 'nit'; did you mean 'net'?",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--round -1", "out-of-range round_s"),
        ("--until -2", "out-of-range --until"),
        ("--seed -1", "out-of-range seed"),
        ("--performance epochs:" + "x" * 300, "missing-option performance"),
        ("--contention rude", "unknown-value contention"),
        ("--cluster axb:v100", "malformed cluster"),
        ("--failures mtfb=3,mttr=1", "unknown-option failures; missing-option failures"),
        ("--resume", "unreadable OUT/snapshot"),
        ("-o /dev/null/at/all", "unwritable /dev/null/at/all/summary.json"),
    ],
)
def test_what_makes_no_sense(trace: Path, tmp_path: Path, more: str, told: str) -> None:
    usual = ("--workload", trace, "--policy", "fifo", "--cluster", "2x4", "-o", tmp_path / "out")
    command = ("simulate", *usual, *more.split())
    ends(f"2: {told}".replace("OUT", str(tmp_path / "out")), *command)
    assert not (tmp_path / "out").exists()


def interrupt_at_take(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C pressed when GPUs are taken for the so-many-th time."""
    taken, place = count(1), FreeGpus.place

    def interrupted(free: FreeGpus, job: TraceJob, *how: Any) -> tuple[int, ...] | None:
        if next(taken) == number:
            signal.raise_signal(signal.SIGINT)
        return place(free, job, *how)

    monkeypatch.setattr(FreeGpus, "place", interrupted)


def test_interrupt_leaves_a_snapshot_from_which_the_same_results_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    lines = (f"j{k},{37 * k % 9000},m,{1 + k % 8},{1 + 7919 * k % 300}" for k in range(200))
    trace.write_text("\n".join(["name,submit_s,model,gpus,iterations", *lines]) + "\n")
    interrupt_at_take(100, monkeypatch)
    given = {"--policy": "srtf", "--contention": "fair", "--failures": "mtbf=0.5,mttr=0.1,links=1,checkpoint=120"}

    def words(**other: str) -> list[str]:
        changed = given | {f"--{name}": word for name, word in other.items()}
        return [each for pair in changed.items() for each in pair]

    assert simulate(trace, tmp_path / "cut", *words()) == 130
    assert "--resume" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["snapshot"]
    again = ("simulate", "--workload", trace, "--cluster", "2x4", "-o", tmp_path / "cut", "--resume")
    for name, word in (
        ("policy", "fifo"),
        ("contention", "degraded:0.5"),
        ("restart", "1"),
        ("failures", "mtbf=1,mttr=1"),
    ):
        ends(f"3: mismatch {tmp_path / 'cut' / 'snapshot'}", *again, *words(**{name: word}))
    assert simulate(trace, tmp_path / "cut", *words(), "--resume") == 0
    assert simulate(trace, tmp_path / "whole", *words()) == 0
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == RESULTS
    assert (tmp_path / "cut" / "jobs.csv").read_bytes() == (tmp_path / "whole" / "jobs.csv").read_bytes()


def test_a_policy_that_cannot_be_put_aside_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\n" + "".join(f"j{k},{k},m,8,60\n" for k in range(9)))
    interrupt_at_take(3, monkeypatch)
    monkeypatch.delattr(Stateless, "restore")
    # Of a class that was asked before, Python remembers that it could be put aside.
    forgetful = replace(fifo.FIFO, start=type("Forgetful", (fifo._FifoScheduler,), {}))
    monkeypatch.setattr("jigsaw_opt.scheduling.policy.find", lambda name: forgetful)
    assert simulate(trace, tmp_path / "out", "--policy", "fifo") == 130
    told = capsys.readouterr().err
    assert "'fifo'" in told and "--resume" not in told
    assert not list((tmp_path / "out").iterdir())
    assert simulate(trace, tmp_path / "out", "--policy", "fifo") == 0  # which it would have come to


def test_a_file_whose_name_is_no_text(trace: Path, tmp_path: Path) -> None:
    odd = trace.with_name("odd\udcff.csv")
    try:
        trace.rename(odd)
    except OSError:
        pytest.skip("the file system takes no such names")
    assert simulate(odd, tmp_path / "out", "--policy", "fifo") == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["workload"].endswith("odd?.csv")


def test_a_summary_is_of_the_tables_beside_it(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assert simulate(trace, out, "--policy", "fifo") == 0

    def interrupted(*_arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation_report, "simulation_html", interrupted)
    assert simulate(trace, out, "--policy", "srtf", "--force") == 130
    assert not (out / "summary.json").exists()


def test_policies_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers", "--policies", "--json"]) == 0
    listed = {entry["name"]: entry["options"] for entry in json.loads(capsys.readouterr().out)}
    assert listed["srtf"]["measure"] == ["time", "service"]
    assert main(["solvers", "--policies"]) == 0
    assert "measure=time|service" in capsys.readouterr().out
    # Given one by one, all are taken.
    words = "simulate --workload a.csv --cluster c --policy fifo --policy las srtf -o out"
    assert parser_of(COMMANDS).parse_args(words.split()).policy == ["fifo", "las", "srtf"]


def test_a_failure_of_a_file_stops_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, events = tmp_path / "trace.csv", tmp_path / "events.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,m,4,1000\n")
    events.write_text("time_s,kind,name,state\n500,server,s0,down\n")
    failures = ("--policy", "srtf", "--failures", f"{events},checkpoint=200")
    assert simulate(trace, tmp_path / "out", *failures, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    # Saved at 430 s with 400 s of work; from the round at 540 s on the other server, ready at 570 s.
    assert printed["makespan_h"] == pytest.approx((570 + 600) / 3600)
    assert printed["failure_stops"] == 1
    assert printed["lost_gpu_hours"] == pytest.approx(4 * 70 / 3600)
    assert printed["availability"] == pytest.approx(1 - 4 * (1170 - 500) / (8 * 1170))
    head, line = (tmp_path / "out" / "jobs.csv").read_text().splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["failure_stops"], row["lost_gpu_s"]) == ("1", "280.000000")


def test_failures_that_make_no_sense(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("simulate", "--workload", trace, "--cluster", "2x4", "--policy", "srtf", "-o", tmp_path / "out")
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

"""`jigsaw simulate` as a user calls it."""

from __future__ import annotations

import json
import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policy import Scheduler
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
        (["--policy", "fifth"], "unknown-name policy"),
        (["--policy", "fifo", "--round", "-1"], "out-of-range round_s"),
        (["--policy", "fifo", "--restart", "nan"], "out-of-range restart_s"),
        (["--policy", "fifo", "--round", "1e308"], "out-of-range round_s"),
        (["--policy", "fifo", "--until", "-2"], "out-of-range --until"),
        (["--policy", "fifo", "--until", "inf"], "out-of-range --until"),
        (["--policy", "fifo", "--seed", "-1"], "out-of-range seed"),
        (["--policy", "fifo", "--performance", "epochs:" + "x" * 300], "missing-option performance"),
        (["--policy", "fifo", "--performance", "table:" + "x" * 300], "missing-option performance"),
        (["--policy", "fifo", "--contention", "rude"], "unknown-value contention"),
        (["--policy", "fifo", "--performance", "guess"], "unknown-name performance"),
        (["--policy", "fifo", "--draw-models"], "missing-option performance"),
        (["--policy", "fifo", "--cluster", "0x4"], "out-of-range cluster"),
        (["--policy", "fifo", "--cluster", "axb:v100"], "malformed cluster"),
        (["--policy", "fifo", "--failures", "mtfb=3,mttr=1"], "unknown-option failures; missing-option failures"),
        (["--policy", "fifo", "--resume"], "unreadable OUT/snapshot"),
        (
            ["--policy", "fifo", "-o", "/dev/null/at/all"],
            "unwritable /dev/null/at/all/summary.json",
        ),
    ],
)
def test_what_makes_no_sense(trace: Path, tmp_path: Path, more: list[str], told: str) -> None:
    command = ("simulate", "--workload", trace, "--cluster", "2x4", "-o", tmp_path / "out", *more)
    ends(f"2: {told}".replace("OUT", str(tmp_path / "out")), *command)
    assert not (tmp_path / "out").exists()


def test_models_of_the_cluster_and_a_stop(tmp_path: Path, pair_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,duration,num_gpus\n2017-11-01 00:00:00,7200,2\n2017-11-01 00:10:00,600,1\n")
    out = tmp_path / "out"
    arguments = ["--workload", f"philly:{trace}", "--cluster", str(pair_path), "--policy", "srtf", "-o", str(out)]
    assert main(["simulate", *arguments, "--draw-models", "--until", "1"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["jobs"], summary["unfinished"], summary["makespan_h"]) == (2, 1, 1.0)
    assert "net" in (out / "jobs.csv").read_text()


def test_a_cluster_of_a_family(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,seconds,2,600\n")
    arguments = ["--workload", str(trace), "--policy", "fifo", "--draw-models", "-o", str(tmp_path / "out")]
    for sweep in ([], ["--sweep", "--force"]):
        assert main(["simulate", *sweep, "--cluster", "server:3:gpus=4", *arguments]) == 0
    assert main(["simulate", "--cluster", "server:three", *arguments]) == 2


def test_why_a_simulation_of_a_sweep_failed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,seconds,2,600\n")
    arguments = ["--workload", str(trace), "--policy", "sia", "-o", str(tmp_path / "out")]
    assert main(["simulate", "--sweep", "--cluster", "1x4:v100", *arguments]) == 0
    told = capsys.readouterr().err
    assert all(each in told for each in ("'sia'", "'goodput'", "'seconds'"))


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
    assert simulate(trace, tmp_path / "cut", "--policy", "srtf", "--contention", "fair") == 130
    assert "--resume" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["snapshot"]
    again = ("simulate", "--workload", trace, "--cluster", "2x4", "-o", tmp_path / "cut", "--resume", "--policy")
    for other in (["fifo"], ["srtf", "--contention", "degraded:0.5"], ["srtf", "--restart", "1"]):
        ends(f"3: mismatch {tmp_path / 'cut' / 'snapshot'}", *again, *other)
    assert simulate(trace, tmp_path / "cut", "--policy", "srtf", "--contention", "fair", "--resume") == 0
    assert simulate(trace, tmp_path / "whole", "--policy", "srtf", "--contention", "fair") == 0
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == RESULTS
    assert (tmp_path / "cut" / "jobs.csv").read_bytes() == (tmp_path / "whole" / "jobs.csv").read_bytes()


class _Unkept:
    """A scheduler of another package, which only decides."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.decide = scheduler.decide


def test_a_policy_that_cannot_be_put_aside_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, start = tmp_path / "trace.csv", type(FIFO).start
    trace.write_text("name,submit_s,model,gpus,iterations\n" + "".join(f"j{k},{k},m,8,60\n" for k in range(9)))
    interrupt_at_take(3, monkeypatch)
    monkeypatch.setattr(type(FIFO), "start", lambda *given: _Unkept(start(*given)))
    assert simulate(trace, tmp_path / "out", "--policy", "fifo") == 130
    told = capsys.readouterr().err
    assert "'fifo'" in told and "--resume" not in told
    assert not list((tmp_path / "out").iterdir())
    assert simulate(trace, tmp_path / "out", "--policy", "fifo") == 0  # which it would have come to


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format": "jigsaw-snapshot/4"}', "only 'jigsaw-snapshot/5' is read"),
        (b"", "snapshot: empty; an object is expected"),
        (b"[" * 10**6, "is not a JSON object|not a JSON object"),
        (b'{"format": "jigsaw-snapshot/5"}', 'missing key "state"'),
    ],
)
def test_what_is_no_snapshot_is_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, message: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "snapshot").write_bytes(data)
    assert simulate(trace, tmp_path / "out", "--policy", "fifo", "--resume") == 3
    assert re.search(message, printed := capsys.readouterr().err), printed
    assert "Traceback" not in printed


def test_a_name_that_is_too_long_is_no_file(trace: Path, tmp_path: Path) -> None:
    long = "x" * 300
    command = ("simulate", "--workload", trace, "--policy", "fifo", "--cluster")
    ends(f"3: unreadable {long}", *command, long, "-o", tmp_path / "out")
    ends(f"2: unwritable {tmp_path / long / 'summary.json'}", *command, "2x4", "-o", tmp_path / long)


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

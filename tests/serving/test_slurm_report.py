"""What a log tells: its report, and what gives the jobs of a dead client back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.serving.slurm.client import ClientSetting
from jigsaw_opt.serving.slurm.commands import Command
from jigsaw_opt.serving.slurm.give_back import give_back
from jigsaw_opt.serving.slurm.log import ClientLog, read_log
from jigsaw_opt.serving.slurm.report import report
from tests.serving.pretended_slurm import SECOND_US, PretendedSlurm
from tests.serving.test_slurm_client import client_of
from tests.serving.test_slurm_reading import DATA

FIRST_US = 1_800_000_000 * SECOND_US  # 2027-01-15 08:00


def write(path: Path, *entries: tuple[int, str, dict[str, object]]) -> Path:
    """Write a log of entries at seconds after its beginning."""
    begin = {"nodes": {"n0": "gpu:4"}, "nodes_without_gpus": 1, "act": False, "policy": "fifo"}
    with ClientLog(path) as log:
        log.write(FIRST_US, "begin", **begin, partition="", comment="")
        for second, kind, facts in entries:
            log.write(FIRST_US + second * SECOND_US, kind, **facts)
    return path


def lasting(job: str, gpus: int, submit_s: int, start_s: int, end_s: int) -> list[tuple[int, str, dict[str, object]]]:
    """Return the entries of a job that Slurm ran, with what was predicted: a start ten seconds earlier."""
    facts = {"job": job, "gpus": gpus, "submit_us": FIRST_US + submit_s * SECOND_US, "limit_us": None}
    start_us, end_us = FIRST_US + start_s * SECOND_US, FIRST_US + end_s * SECOND_US
    predicted = {"job": job, "low_us": start_us - 20 * SECOND_US, "middle_us": start_us - 10 * SECOND_US}
    return [
        (submit_s, "job", facts),
        (submit_s, "predicted", {**predicted, "high_us": start_us - 5 * SECOND_US * (job != "a")}),
        (start_s, "running", {**facts, "types": [], "nodes": ["n0"], "start_us": start_us}),
        (end_s, "ended", {"job": job, "state": "COMPLETED", "start_us": start_us, "end_us": end_us}),
    ]


def test_the_report_of_a_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Slurm starts each job 100 s late; first come, first served starts a at once and b when a has ended.
    entries = [*lasting("a", 4, 0, 100, 200), *lasting("b", 2, 50, 300, 400)]
    waiting = {"job": "c", "gpus": 1, "submit_us": FIRST_US, "limit_us": None}
    path = write(tmp_path / "log", *sorted(entries, key=lambda one: one[0]), (500, "job", waiting))
    found = report(path)
    names = ("policy", "gpus", "nodes", "jobs", "jobs_that_wait", "jobs_that_run")
    assert [found[name] for name in names] == ["fifo", 4, 1, 3, 1, 0]
    (day,) = found["days"]
    names = ("day", "predictions", "median_error_s", "mean_error_s", "inside_interval", "started", "compared")
    assert [day[name] for name in names] == ["2027-01-15", 2, 10, 10, 0.5, 2, 2]
    # Of 500 s with 4 GPUs, 100 s with 4 and 100 s with 2 are used.
    names = ("mean_wait_s", "median_wait_s", "use")
    assert [day[f"slurm_{name}"] for name in names] == [175, 175, 0.3]
    assert [day[f"policy_{name}"] for name in names] == [25, 25, 0.3]
    assert main(["slurm", "report", "--log", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "3 jobs, of which 1 wait and 0 run; fifo on 4 GPUs of 1 nodes" in printed
    assert printed.splitlines()[-1].split() == ["2027-01-15", "2", "10", "10", "50%", "2", "175", "25", "30%", "30%"]
    assert main(["slurm", "report", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_job_over_midnight_counts_on_both_days(tmp_path: Path) -> None:
    midnight_s = 16 * 3600
    found = report(write(tmp_path / "log", *lasting("a", 4, 0, midnight_s - 100, midnight_s + 300)))
    assert [day["day"] for day in found["days"]] == ["2027-01-15", "2027-01-16"]
    assert [day["started"] for day in found["days"]] == [1, 0]
    assert [day["slurm_use"] for day in found["days"]] == [100 / midnight_s, 1.0]
    assert [day["policy_use"] for day in found["days"]] == [400 / midnight_s, 0.0]


def test_a_report_of_a_whole_shadow(tmp_path: Path) -> None:
    slurm = PretendedSlurm(2, 4)
    with ClientLog(tmp_path / "log") as log:
        client = client_of(slurm, log, ClientSetting())
        for k in range(100):
            if k < 30:
                slurm.submit(1 + k % 4, 20 + k, held=False, limit_s=60)
            client.poll()
            slurm.advance(5)
    (day,) = report(tmp_path / "log")["days"]
    assert (day["started"], day["predictions"] > 5) == (30, True)
    assert 0 <= day["inside_interval"] <= 1
    assert day["slurm_use"] == pytest.approx(day["policy_use"], abs=0.05)


def test_a_log_without_a_beginning_is_refused(tmp_path: Path) -> None:
    with ClientLog(tmp_path / "log") as log:
        log.write(FIRST_US, "alive")
    with pytest.raises(InvalidInputError, match="says of no client that it began"):
        report(tmp_path / "log")
    assert main(["slurm", "report", "--log", str(tmp_path / "none")]) == 3


def acted(tmp_path: Path) -> PretendedSlurm:
    """Return a Slurm whose client died: one job runs, one has a place on the other node, one is held."""
    slurm = PretendedSlurm(2, 4)
    slurm.submit(4, 10_000)
    slurm.submit(4, 10_000, held=False)
    slurm.submit(4, 50)
    slurm.submit(2, 50, comment="by hand")
    with ClientLog(tmp_path / "log") as log:
        client_of(slurm, log, ClientSetting(act=True)).poll()
    return slurm


def test_a_dead_client_gives_its_jobs_back(tmp_path: Path) -> None:
    slurm = acted(tmp_path)
    assert [job.state for job in slurm.jobs.values()] == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    slurm.advance(599)
    assert give_back(slurm, tmp_path / "log", 600 * SECOND_US, slurm.clock()) is None
    slurm.advance(1)
    assert give_back(slurm, tmp_path / "log", 600 * SECOND_US, slurm.clock()) == (["3", "4"], [])
    assert not any(job.held for job in slurm.jobs.values())
    slurm.advance(10_000)
    assert {job.state for job in slurm.jobs.values()} == {"COMPLETED"}


def test_jobs_that_were_placed_may_run_anywhere_again(tmp_path: Path) -> None:
    slurm = PretendedSlurm(2, 4)
    job = slurm.submit(4, 10)

    def die(command: Command) -> None:
        if command[:2] == ("scontrol", "update"):
            raise KeyboardInterrupt

    slurm.after = die
    with ClientLog(tmp_path / "log") as log, pytest.raises(KeyboardInterrupt):
        client_of(slurm, log, ClientSetting(act=True)).poll()
    slurm.after = lambda command: None
    slurm.states["n0"] = "down"
    slurm.advance(600)
    assert job.wanted == ("n0",)
    assert give_back(slurm, tmp_path / "log", 600 * SECOND_US, slurm.clock()) == (["1"], [])
    assert job.started == [(slurm.now_s, ("n1",))]


def test_a_shadow_has_nothing_to_give_back(tmp_path: Path) -> None:
    slurm = PretendedSlurm(1, 4)
    slurm.submit(1, 10)
    with ClientLog(tmp_path / "log") as log:
        client_of(slurm, log, ClientSetting()).poll()
    assert give_back(slurm, tmp_path / "log", 0, slurm.clock()) is None
    assert slurm.jobs[1].held


def test_the_command_watches_and_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["slurm", "--once", "--log", str(log)]) == 1
    assert not log.exists()
    for name, output in (("squeue", "squeue-22.05.json"), ("sinfo", "sinfo-22.05.json")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexec /bin/cat {DATA / output}\n")
        program.chmod(0o755)
    assert main(["slurm", "--once", "--log", str(log)]) == 0
    entries = list(read_log(log))
    assert [entry["job"] for entry in entries if entry["entry"] == "running"] == ["1", "7"]
    assert entries[0]["nodes"] == {f"n{k}": "gpu:4" for k in range(3)}
    assert {"n2", "closed"} < {value for entry in entries if entry["entry"] == "node" for value in entry.values()}
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    assert main(["slurm", "--once", "--log", str(log)]) == 1
    assert main(["slurm", "give-back", "--log", str(log)]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["--preempt", "--once"],
        ["--once", "--after", "5"],
        ["--once", "--json"],
        ["report", "--act"],
        ["give-back", "--policy", "las"],
    ],
)
def test_options_that_are_not_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["slurm", *words, "--log", str(tmp_path / "log")]) == 2
    assert "--" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_an_empty_log_is_called_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").touch()
    assert main(["slurm", "report", "--log", str(tmp_path / "log")]) == 3
    assert "is empty: no client has written to it" in capsys.readouterr().err

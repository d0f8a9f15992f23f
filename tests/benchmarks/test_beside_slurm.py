"""What the benchmark beside Slurm counts: jobs that are lost, begun too often, or elsewhere than planned."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

from beside_slurm import HEADS, TIME_HEADS, Trial, time_line
from slurm_order import SleepJob

from jigsaw_opt.serving.slurm.commands import place
from jigsaw_opt.serving.slurm.log import ClientLog


def test_jobs_that_are_lost_or_begun_too_often_are_counted(tmp_path: Path) -> None:
    trial = Trial(tmp_path, Namespace(seconds=100), "fifo")
    trial.client, names = Mock(), ("ended", "elsewhere", "late", "failed", "unknown")
    trial.submitted_s = dict.fromkeys(names, 100.0)
    record = "JobId={} UserId=root(0) Name=j JobState={} Partition=low \n"
    ends = (("1", "COMPLETED"), ("2", "NODE_FAIL"), ("2", "COMPLETED"), ("4", "FAILED"))
    trial.completions.write_text("".join(record.format(*end) for end in ends))
    trial.starts.write_text("1\n1\n2\n4\n")
    with ClientLog(trial.log) as log:
        for job in ("1", "2"):
            log.write(1, "command", command=place(job, ["n0"]))
    states = {"ended": ("COMPLETED", "n0"), "elsewhere": ("COMPLETED", "n1"), "late": ("PENDING", "")}
    found = {
        name: {"JobId": str(k), "JobState": state, "NodeList": node, "StartTime": "120", "Restarts": "0"}
        for k, (name, (state, node)) in enumerate({**states, "failed": ("FAILED", "n0")}.items(), 1)
    }
    row = trial.measures([SleepJob(name, 0, 16, 8, 1) for name in names], found, 100.0)
    told = dict(zip(HEADS, row, strict=True))
    counts = ("ended", "late", "lost", "completed once", "starts", "too many", "not as planned")
    assert [told[name] for name in counts] == [2, 1, 2, 2, 4, 1, 1]
    assert (told["GPUs in use"], told["mean wait s"], told["last end s"]) == ("16.0%", "20.0", "28.0")


def test_the_time_line_of_a_job(tmp_path: Path) -> None:
    lines = ("_slurm_rpc_submit_batch_job: JobId={}", "sched: _release_job_rec: release hold on JobId={} by uid 0")
    lines += ("sched/backfill: _start_job: Started JobId={} in low on n0", "_job_complete: JobId={} done")
    stamped = enumerate(line.format(job) for job in (1, 2) for line in lines)
    controller = "".join(f"[1970-01-01T00:00:{second:02}.500] {line}\n" for second, line in stamped)
    (tmp_path / "controller").write_text(controller)
    with ClientLog(tmp_path / "log") as log:
        log.write(750_000, "job", job="1")
        log.write(1_250_000, "plan", job="1")
        log.write(4_500_000, "ended", job="1")
    # Job 2 is submitted after the end of job 1, so that nothing waits then.
    row = time_line("client", tmp_path / "controller", tmp_path / "log")
    assert row == ("client", "0.25 / 0.25", "1.00 / 1.00", "0.25 / 0.25", "1.00 / 1.00", "-")
    assert len(row) == len(TIME_HEADS)

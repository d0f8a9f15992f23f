"""What the benchmark beside Slurm counts: jobs that are lost, begun too often, or elsewhere than planned."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

from beside_slurm import HEADS, Trial
from slurm_order import SleepJob

from jigsaw_opt.serving.slurm.log import ClientLog


def test_jobs_that_are_lost_or_begun_too_often_are_counted(tmp_path: Path) -> None:
    trial = Trial(tmp_path, Namespace(seconds=100), "fifo")
    trial.client, names = Mock(), ("ended", "elsewhere", "late", "failed", "unknown")
    trial.submitted_s = dict.fromkeys(names, 100.0)
    trial.starts.write_text("1\n1\n2\n4\n")
    with ClientLog(trial.log) as log:
        for job in ("1", "2"):
            log.write(1, "plan", job=job, nodes=["n0"])
    states = {"ended": ("COMPLETED", "n0"), "elsewhere": ("COMPLETED", "n1"), "late": ("PENDING", "")}
    found = {
        name: {"JobId": str(k), "JobState": state, "NodeList": node, "StartTime": "120", "Restarts": "0"}
        for k, (name, (state, node)) in enumerate({**states, "failed": ("FAILED", "n0")}.items(), 1)
    }
    row = trial.measures([SleepJob(name, 0, 16, 8, 1) for name in names], found, 100.0)
    told = dict(zip(HEADS, row, strict=True))
    counts = ("ended", "late", "lost", "starts", "too many", "not as planned")
    assert [told[name] for name in counts] == [2, 1, 2, 4, 1, 1]
    assert (told["GPUs in use"], told["mean wait s"], told["last end s"]) == ("16.0%", "20.0", "28.0")

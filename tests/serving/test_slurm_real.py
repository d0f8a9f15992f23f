"""The client beside a real `slurmctld`: it is killed, a node fails, and the controller starts anew."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm, missing_programs

from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.serving.slurm.log import read_log

MISSING = missing_programs()
CONF = ("PriorityType=priority/basic", "SchedulerParameters=batch_sched_delay=0,sched_interval=2", "MinJobAge=600")


def client_of(real: ThrowawaySlurm, log: Path) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-m", "jigsaw_opt", "slurm", "--act", "--every", "1", "--patience", "20", "--log")
    with (log.parent / "client.txt").open("ab") as output:
        return subprocess.Popen((*command, str(log)), env=real.environment, stdout=output, stderr=output)


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING} here: apt-get install slurmctld slurmd slurm-client")
def test_no_job_is_lost_or_started_twice(tmp_path: Path) -> None:
    folder, log, starts = tmp_path / "slurm", tmp_path / "log.jsonl", tmp_path / "starts"
    folder.mkdir()
    conf = (*CONF, "PartitionName=low Nodes=ALL Default=YES MaxTime=600")
    with ThrowawaySlurm(folder, 3, 4, conf) as real:
        for k in range(15):
            nodes, gpus = (2, 4) if k % 5 == 4 else (1, 1 + k % 4)
            script = f"echo $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_RESTART_COUNT >> {starts}; sleep {6 + k % 5}"
            shape = ("-N", str(nodes), "-n", str(gpus), "--gpus-per-task=1", "-t", "10", "--hold")
            real.call("sbatch", "-J", f"j{k}", *shape, "-o", "/dev/null", "-D", "/", f"--wrap={script}")
        node, killed, failed, restarted, client = "", 0, False, False, client_of(real, log)
        try:
            begun = time.monotonic()
            while time.monotonic() - begun < 400:
                time.sleep(3)
                states = Counter(job["JobState"] for job in real.jobs().values())
                if killed < 5:
                    client.send_signal(signal.SIGKILL)
                    client.wait()
                    killed += 1
                    client = client_of(real, log)
                    time.sleep(1.5)
                if killed == 2 and not failed:
                    (node, *_) = nodes_of(next(one["NodeList"] for one in real.jobs().values() if _runs(one))) or ()
                    real.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
                    failed = True
                elif killed == 4 and not restarted:
                    real.restart_controller()
                    restarted = True
                if states["COMPLETED"] == 15:
                    break
            jobs = real.jobs()
        finally:
            client.send_signal(signal.SIGTERM)
            client.wait()
    assert (killed, failed, restarted) == (5, True, True)
    assert {name: job["JobState"] for name, job in jobs.items() if job["JobState"] != "COMPLETED"} == {}
    lines = [line.split() for line in starts.read_text().splitlines()]
    ran = Counter(line[0] for line in lines)
    assert sum(int(job["Restarts"]) for job in jobs.values()) >= 1
    assert {job["JobId"]: int(job["Restarts"]) + 1 for job in jobs.values()} == ran
    placed: dict[str, list[str]] = {}
    for entry in read_log(log):
        words = entry.get("command", [])
        if entry["entry"] == "command" and words[1] == "update":
            placed.setdefault(words[2].partition("=")[2], []).append(words[3].partition("=")[2])
    for job in jobs.values():
        assert ",".join(nodes_of(job["NodeList"]) or ()) in placed[job["JobId"]]
    print(f"{len(jobs)} jobs, {sum(ran.values())} starts, {log.stat().st_size} bytes of log")


def _runs(job: Mapping[str, str]) -> bool:
    return job["JobState"] == "RUNNING"

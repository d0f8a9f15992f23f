"""Half a day of Philly through a real Slurm: by its own backfill, and by policies that `jigsaw slurm` carries out.

Run it as ``python benchmarks/beside_slurm.py [POLICY ...]`` where Slurm is installed (Debian and Ubuntu:
``apt-get install slurmctld slurmd slurm-client``). Jobs of a trace of ``JIGSAW_SHARED`` are drawn until they ask for
`--load` times the GPU time of the cluster, and become jobs that sleep; submissions and durations are shortened alike,
and jobs below `--least` are left out, as a start alone takes up to a second. A limit is twice the duration, in whole
minutes. Each policy has a Slurm of its own
with the same submissions, in which a node is down for a while and `slurmctld` is started again; clients are killed.

A job is late that has not ended when the time is over, and lost where Slurm has it no more or it failed. `completed
once` counts the jobs of which Slurm's log of completions tells exactly one success. A second table tells the time line
of the jobs. It exits with 7 where a job is lost, has not completed exactly once although it is not late, has begun more
often than Slurm counts, or ended on other nodes than the client last named, and with 6 where there is no Slurm.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import mean, median

from common import print_table, shared
from slurm_order import SCHEDULER, SleepJob, submit
from throwaway_slurm import ThrowawaySlurm, missing_programs

from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.serving.slurm.client import DEFAULT_POLICY
from jigsaw_opt.serving.slurm.log import read_log

SLURM = "Slurm itself"
NODES, NODE_GPUS = 4, 4
HALF_DAY_S = 12 * 3600
CONF = ("PriorityType=priority/basic", SCHEDULER, "MinJobAge=3600", "PartitionName=low Nodes=ALL Default=YES")
HEADS = (
    *("who starts jobs", "ended", "late", "lost", "completed once", "starts", "too many", "not as planned"),
    *("given back", "clients killed", "GPUs in use", "mean wait s", "median wait s", "last end s"),
)
STEPS = (("submitted", "seen"), ("ended", "told"), ("decided", "released"), ("released", "started"))
TIME_HEADS = ("seconds, mean / median", *(" to ".join(step) for step in STEPS), "ended to next start")
_CONTROLLER = re.compile(
    r"\[(\S+)\] .*(submit_batch_job:|release hold on|Allocate|Started|_job_complete:) JobId=(\d+)(.*)"
)
_CALLED = {"submit_batch_job:": "submitted", "release hold on": "released", "_job_complete:": "ended"}
_CALLED |= {"Allocate": "started", "Started": "started"}
_LOGGED = {"job": "seen", "ended": "told", "plan": "decided"}
_DOWN_S = 20.0


def short_jobs(given: argparse.Namespace) -> list[SleepJob]:
    """Return jobs of the first half day of the trace, shortened: at least 3 s, and at most the whole half day, long."""
    file = shared("cluster/philly", f"philly_jobs_{given.week}.csv")
    jobs = read_trace("philly", file.read_bytes(), file.name).jobs
    first_us, factor = jobs[0].submit_us, given.seconds / HALF_DAY_S
    able = [job for job in jobs if job.submit_us < first_us + HALF_DAY_S * 10**6 and job.gpus <= NODES * NODE_GPUS]
    random.Random(given.seed).shuffle(able)
    found, left = list[SleepJob](), given.load * NODES * NODE_GPUS * given.seconds
    for k, job in enumerate(able):
        run_s = min(given.seconds, round((job.iterations or 0) * factor))
        gpus = job.gpus if job.gpus <= NODE_GPUS else -(-job.gpus // NODE_GPUS) * NODE_GPUS
        if run_s >= given.least and gpus * run_s <= left:
            left -= gpus * run_s
            submit_s = round((job.submit_us - first_us) / 10**6 * factor)
            found.append(SleepJob(f"j{k}", submit_s, gpus, run_s, -(-2 * run_s // 60)))
    return sorted(found, key=lambda job: job.submit_s)


class Trial:
    """One Slurm with the jobs of a trace, which a client may start."""

    def __init__(self, folder: Path, given: argparse.Namespace, policy: str, every_s: float = 1.0) -> None:
        self.given, self.policy, self.folder, self.killed, self.every_s = given, policy, folder, 0, every_s
        self.who = policy if policy == SLURM else f"{policy}, every {every_s:g} s"
        self.log, self.starts, self.node = folder / "log.jsonl", folder / "starts", ""
        self.submitted_s: dict[str, float] = {}
        (folder / "slurm").mkdir()
        self.completions = folder / "completions"
        conf = (*CONF, "JobCompType=jobcomp/filetxt", f"JobCompLoc={self.completions}")
        self.slurm = ThrowawaySlurm(folder / "slurm", NODES, NODE_GPUS, conf)
        self.client: subprocess.Popen[bytes] | None = None

    def begin_client(self) -> None:
        """Start a client, which goes on with the log of the one before."""
        command = (sys.executable, "-m", "jigsaw_opt", "slurm", "--act", "--policy", self.policy)
        with (self.folder / "client.txt").open("ab") as out:
            told = ("--every", str(self.every_s), "--patience", "20", "--log", str(self.log))
            self.client = subprocess.Popen((*command, *told), env=self.slurm.environment, stdout=out, stderr=out)

    def kill_client(self) -> None:
        """Kill the client, if there is one, and start another."""
        if self.client is not None:
            self.client.kill()
            self.client.wait()
            self.killed += 1
            self.begin_client()

    def submit(self, job: SleepJob) -> None:
        """Submit a job, held where there is a client, that notes each of its starts in a file."""
        script = f"echo $SLURM_JOB_ID >> {self.starts}; sleep {job.run_s}"
        submit(self.slurm, NODE_GPUS, job, script, *(("--hold",) if self.client else ()))
        self.submitted_s[job.name] = time.time()

    def lose_node(self) -> None:
        """Have the node go down on which the most jobs run, once some run."""
        used, until_s = Counter[str](), time.time() + 60
        while not used and time.time() < until_s:
            running = [job for job in self.slurm.jobs().values() if job["JobState"] == "RUNNING"]
            used = Counter(node for job in running for node in nodes_of(job["NodeList"]) or ())
            time.sleep(0 if used else 0.5)
        self.node = max(used, key=used.__getitem__, default="n0")
        self.slurm.call("scontrol", "update", f"nodename={self.node}", "state=down", "reason=test")

    def regain_node(self) -> None:
        """Have the node back."""
        with suppress(RuntimeError):  # it may be back already, as it registered anew
            self.slurm.call("scontrol", "update", f"nodename={self.node}", "state=resume")

    def run(self, jobs: Sequence[SleepJob]) -> Sequence[object]:
        """Return the row of the table."""
        last_s = self.given.seconds
        acts: list[tuple[float, Callable[[], None]]] = [(job.submit_s, partial(self.submit, job)) for job in jobs]
        acts += [(last_s * (k + 0.5) / self.given.kills, self.kill_client) for k in range(self.given.kills)]
        if self.given.node_down:
            acts += [(last_s / 3, self.lose_node), (last_s / 3 + _DOWN_S, self.regain_node)]
        acts += [(last_s * 2 / 3, self.slurm.restart_controller)] if self.given.restart else []
        with self.slurm:
            if self.policy != SLURM:
                self.begin_client()
            try:
                zero_s = time.time()
                for at_s, act in sorted(acts, key=lambda one: one[0]):
                    time.sleep(max(0.0, zero_s + at_s - time.time()))
                    act()
                until_s = zero_s + last_s + self.given.patience
                while any(one["JobState"] != "COMPLETED" for one in self.slurm.jobs().values()):
                    if time.time() > until_s:
                        break
                    time.sleep(2)
                return self.measures(jobs, self.slurm.jobs(), zero_s)
            finally:
                if self.client is not None:
                    self.client.terminate()
                    self.client.wait()

    def measures(self, jobs: Sequence[SleepJob], found: dict[str, dict[str, str]], zero_s: float) -> Sequence[object]:
        """Return what became of the jobs; waiting and use are those of the last start of each that began."""
        states = {job.name: found.get(job.name, {}).get("JobState", "") for job in jobs}
        ended = [job for job in jobs if states[job.name] == "COMPLETED"]
        late = [name for name, state in states.items() if state in ("PENDING", "RUNNING", "COMPLETING")]
        ran = Counter(self.starts.read_text().split())
        started = sum(int(one["Restarts"]) + (one["JobState"] != "PENDING") for one in found.values())
        entries = list(read_log(self.log)) if self.client else []
        commands = [one["command"] for one in entries if one["entry"] == "command"]
        named = (words[2:] for words in commands if words[1] == "update")
        plans = {job.partition("=")[2]: nodes_of(nodes.partition("=")[2]) for job, nodes in named}
        given_back = {one["job"] for one in entries if one["entry"] == "given-back"}
        told = {found[job.name]["JobId"]: tuple(nodes_of(found[job.name]["NodeList"]) or ()) for job in ended}
        elsewhere = sum(plans.get(job) != nodes and job not in given_back for job, nodes in told.items())
        begun = [job for job in jobs if states[job.name] in ("COMPLETED", "RUNNING", "COMPLETING")]
        begun_s = {job.name: int(found[job.name]["StartTime"]) for job in begun}
        waits_s = [max(0.0, at_s - self.submitted_s[name]) for name, at_s in begun_s.items()]
        end_s, used_s = zero_s + self.given.seconds, 0.0
        for job in begun:
            used_s += job.gpus * max(0.0, min(end_s, begun_s[job.name] + job.run_s) - begun_s[job.name])
        last_s = max(begun_s[job.name] + job.run_s for job in begun) - zero_s
        once = sum(count == 1 for count in _completions(self.completions).values())
        return (
            *(self.who, len(ended), len(late), len(jobs) - len(ended) - len(late), once),
            *(sum(ran.values()), sum(ran.values()) - started),
            *((elsewhere, len(given_back), self.killed) if self.client else (0, "-", "-")),
            f"{used_s / (NODES * NODE_GPUS * self.given.seconds):.1%}",
            *(f"{one:.1f}" for one in (mean(waits_s), median(waits_s), last_s)),
        )


def _completions(path: Path) -> Counter[str]:
    """Return how often each job completed, by Slurm's log of completions."""
    text = path.read_text() if path.exists() else ""
    return Counter(re.findall(r"^JobId=(\d+) .* JobState=COMPLETED ", text, re.MULTILINE))


def time_line(who: str, controller: Path, client: Path) -> Sequence[object]:
    """Return a row of the second table, by the log of `slurmctld`, with times of UTC, and that of the client."""
    last: dict[str, dict[str, float]] = {kind: {} for kind in (*_CALLED.values(), *_LOGGED.values())}
    starts: list[float] = []
    for stamp, what, job, more in _CONTROLLER.findall(controller.read_text(errors="replace")):
        at_s = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
        if what != "_job_complete:" or more == " done":
            last[_CALLED[what]][job] = at_s
            starts += [at_s] if _CALLED[what] == "started" else []
    for entry in read_log(client) if client.exists() else ():
        if entry["entry"] in _LOGGED:
            times, at_s = last[_LOGGED[entry["entry"]]], entry["time_us"] / 1e6
            times[entry["job"]] = times.get(entry["job"], at_s) if entry["entry"] == "job" else at_s
    steps = [
        [last[then][job] - at_s for job, at_s in last[first].items() if job in last[then]] for first, then in STEPS
    ]
    waits = [(last["submitted"][job], at_s) for job, at_s in last["started"].items()]
    ends = [end_s for end_s in last["ended"].values() if any(come_s < end_s < at_s for come_s, at_s in waits)]
    steps.append([min(at_s for at_s in starts if at_s > end_s) - end_s for end_s in ends])
    return (who, *(f"{mean(some):.2f} / {median(some):.2f}" if some else "-" for some in steps))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=[DEFAULT_POLICY])
    parser.add_argument("--week", default="2017w46")
    parser.add_argument("--seconds", type=int, default=80, help="into which the half day is shortened")
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", nargs="+", type=float, default=[1.0], help="seconds between two looks of a client")
    parser.add_argument("--least", type=int, default=3, help="seconds that the shortest job lasts")
    parser.add_argument("--kills", type=int, default=10, help="how often clients are killed")
    parser.add_argument("--no-node-down", dest="node_down", action="store_false")
    parser.add_argument("--no-restart", dest="restart", action="store_false", help="of slurmctld")
    parser.add_argument("--patience", type=int, default=120, help="seconds behind the last submission")
    given = parser.parse_args(arguments)
    if missing := missing_programs():
        print(f"no {', '.join(missing)} here: apt-get install slurmctld slurmd slurm-client", file=sys.stderr)
        return 6
    jobs = short_jobs(given)
    who = [(SLURM, 0.0), *((policy, every_s) for policy in given.policies for every_s in given.every)]
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        parts = [Path(folder, str(k)) for k in range(len(who))]
        for part in parts:
            part.mkdir()
        trials = [Trial(part, given, *one) for part, one in zip(parts, who, strict=True)]
        with ThreadPoolExecutor(len(trials)) as pool:
            rows = list(pool.map(lambda trial: trial.run(jobs), trials))
        times = [time_line(one.who, one.folder / "slurm" / "slurmctld.log", one.log) for one in trials]
    print_table(HEADS, rows)
    print_table(TIME_HEADS, times)
    counts = (dict(zip(HEADS, row, strict=True)) for row in rows)
    wrong = ("lost", "too many", "not as planned")
    return 7 if any(any(one[name] for name in wrong) or one["completed once"] != one["ended"] for one in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())

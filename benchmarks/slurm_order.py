"""The order in which a real Slurm starts jobs, beside the order in which the simulated policies start them.

Run it as ``python benchmarks/slurm_order.py [--workloads N] [--record FILE]`` where Slurm is installed
(Debian and Ubuntu: ``apt-get install slurmctld slurmd slurm-client``). Each random workload of `sleep` jobs goes to a
Slurm of its own, which lives in a temporary folder, and to `simulate` with the same lines of slurm.conf. ``--replay
FILE`` compares with recorded answers instead. It exits with 7 where an order differs, and with 6 where there is no
Slurm. See docs/simulation.md for what is the same and what is not.

Slurm takes a second or two from the end of a job to the start of the next, and limits are whole minutes. So two jobs
count as tied where their starts are at most `TIE_S` seconds apart, and of the workloads drawn only those are taken in
which the simulated order stays the same when ends come up to `LATE_S` seconds late and limits are a minute longer.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path

from common import print_table
from throwaway_slurm import ThrowawaySlurm, missing_programs

from jigsaw_opt import simulate
from jigsaw_opt.problem.workload import TraceJob, Workload

TIE_S = 3
LATE_S = 2
_SECOND_US = 1_000_000
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
SCHEDULER = "SchedulerParameters=bf_interval=1,bf_resolution=1,bf_window_linear=1,batch_sched_delay=0,sched_interval=2"
_AS_SLURM = "reserve=servers:placement=consolidated"


@dataclass(frozen=True)
class SleepJob:
    """A job that sleeps: seconds of submission and run time, and minutes of its limit."""

    name: str
    submit_s: int
    gpus: int
    run_s: int
    limit_min: int
    partition: str = "low"


@dataclass(frozen=True)
class Case:
    """A workload in order of submission, on a cluster of Slurm nodes of some GPUs each.

    `policy` is to start the jobs as Slurm does; ``multifactor`` reads `conf`, lines of slurm.conf, too.
    """

    policy: str
    nodes: int
    gpus: int
    conf: tuple[str, ...]
    jobs: tuple[SleepJob, ...]


Run = tuple[Case, Mapping[str, float]]
"""A case, and when Slurm started its jobs."""


def in_order_of_submission(draw: random.Random, kind: str) -> tuple[str, tuple[str, ...]]:
    """Return the policy and lines of slurm.conf of backfill in order of submission."""
    # Slurm reserves for every waiting job, or for the first of each partition.
    reserve = ",bf_job_part_count_reserve=1" if kind == "easy" else ""
    lines = ("PriorityType=priority/basic", SCHEDULER + reserve, "PartitionName=low Nodes=ALL Default=YES MaxTime=600")
    return f"backfill:kind={kind}:{_AS_SLURM}", lines


def by_priority(draw: random.Random) -> tuple[str, tuple[str, ...]]:
    """Return the policy and lines of slurm.conf of priorities by size and partition, with drawn weights."""
    size, favor, tiers = draw.choice((0, 1000, 4000)), draw.choice(("no", "yes")), draw.choice(((1, 1), (1, 2)))
    return f"multifactor:kind=conservative:{_AS_SLURM}", (
        "PriorityType=priority/multifactor",
        f"PriorityWeightJobSize={size}",
        f"PriorityWeightPartition={draw.choice((500, 1000, 2000))}",
        "PriorityWeightAge=0",
        "PriorityWeightFairshare=0",
        f"PriorityFavorSmall={favor}",
        SCHEDULER,
        f"PartitionName=low Nodes=ALL Default=YES MaxTime=600 PriorityJobFactor=10 PriorityTier={tiers[0]}",
        f"PartitionName=high Nodes=ALL MaxTime=600 PriorityJobFactor=20 PriorityTier={tiers[1]}",
    )


KINDS = {
    "EASY": lambda draw: in_order_of_submission(draw, "easy"),
    "conservative": lambda draw: in_order_of_submission(draw, "conservative"),
    "multifactor": by_priority,
}


def drawn(kind: str, seed: int) -> Case:
    """Return a random case in which a job overtakes another, and whose simulated order does not depend on seconds."""
    draw = random.Random(f"{kind} {seed}")
    while True:
        policy, conf = KINDS[kind](draw)
        nodes, gpus, submit_s, jobs = draw.randint(2, 4), draw.randint(2, 4), 0, list[SleepJob]()
        partitions = [line.split()[0].partition("=")[2] for line in conf if line.startswith("PartitionName")]
        for k in range(draw.randint(8, 12)):
            wide = draw.random() < 0.4
            asked = draw.randint(nodes * gpus // 2, nodes * gpus) if wide else draw.randint(1, gpus)
            run_s, limit_min = draw.randrange(5, 40), draw.randint(5, 120)
            jobs.append(SleepJob(f"j{k}", submit_s, asked, run_s, limit_min, draw.choice(partitions)))
            submit_s += draw.randint(1, 4)
        case = Case(policy, nodes, gpus, conf, tuple(jobs))
        starts_s = simulated_starts(case)
        stays = (not reversed_pairs(simulated_starts(late), starts_s, 0) for late in _late(case, draw))
        if overtaking(case, starts_s) and all(stays):
            return case


def _late(case: Case, draw: random.Random) -> Iterator[Case]:
    """Yield a case whose jobs end some seconds later, and whose limits are up to a minute longer."""
    for _ in range(12):
        late = [
            replace(job, run_s=job.run_s + draw.randint(0, LATE_S), limit_min=job.limit_min + draw.randint(0, 1))
            for job in case.jobs
        ]
        yield replace(case, jobs=tuple(late))


def simulated_starts(case: Case) -> dict[str, float]:
    """Return when the policy starts the jobs, in seconds."""
    jobs = tuple(
        TraceJob(
            job.name,
            job.submit_s * _SECOND_US,
            "seconds",
            job.gpus,
            job.run_s,
            time_limit_us=job.limit_min * 60 * _SECOND_US,
            queue=job.partition,
        )
        for job in case.jobs
    )
    policy = case.policy
    with tempfile.TemporaryDirectory() as folder:
        if policy.startswith("multifactor"):
            conf = Path(folder, "slurm.conf")
            conf.write_text("".join(f"{line}\n" for line in case.conf))
            policy += f":conf={conf}"
        found = simulate(Workload("w", jobs), f"{case.nodes}x{case.gpus}:gpu", policy, round_s=0, restart_s=0)
    starts_us = {jobs[record.index].name: record.start_us for record in found.outcome.jobs}
    return {name: start_us / _SECOND_US for name, start_us in starts_us.items() if start_us is not None}


def real_starts(case: Case) -> dict[str, float]:
    """Return when a Slurm of its own starts the jobs, in whole seconds from the first submission on."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        ThrowawaySlurm(Path(folder), case.nodes, case.gpus, case.conf) as slurm,
    ):
        zero_s = int(time.time()) + 2
        for job in case.jobs:
            time.sleep(max(0.0, zero_s + job.submit_s - time.time()))
            submit(slurm, case.gpus, job, f"sleep {job.run_s}")
        until = time.monotonic() + 60 + sum(job.run_s + 5 for job in case.jobs)
        while True:
            found = slurm.jobs()
            if all(found[job.name]["JobState"] in _ENDED for job in case.jobs):
                break
            if time.monotonic() > until:
                raise RuntimeError(f"jobs do not end: { ({name: one['JobState'] for name, one in found.items()}) }")
            time.sleep(2)
        if bad := {name: one["JobState"] for name, one in found.items() if one["JobState"] != "COMPLETED"}:
            raise RuntimeError(f"jobs failed: {bad}")
        return {job.name: float(int(found[job.name]["StartTime"]) - zero_s) for job in case.jobs}


def submit(slurm: ThrowawaySlurm, node_gpus: int, job: SleepJob, script: str, *more: str) -> None:
    """Submit a job of a task a GPU, on as few nodes as can be."""
    nodes = -(-job.gpus // node_gpus)
    where = ("-p", job.partition, "-N", str(nodes), "-n", str(job.gpus), "--gpus-per-task=1")
    named = ("-J", job.name, "-t", str(job.limit_min), "-o", "/dev/null", "-D", "/")
    slurm.call("sbatch", *named, *where, *more, f"--wrap={script}")


def reversed_pairs(
    real_s: Mapping[str, float], simulated_s: Mapping[str, float], tie_s: float = TIE_S
) -> list[tuple[str, str]]:
    """Return the pairs of jobs of which the first starts before the second in one and behind it in the other."""
    return [
        (a, b)
        for a, b in permutations(simulated_s, 2)
        if real_s[a] + tie_s < real_s[b] and simulated_s[b] + tie_s < simulated_s[a]
    ]


def overtaking(case: Case, starts_s: Mapping[str, float]) -> int:
    """Return how many jobs start before one that was submitted earlier."""
    names = [job.name for job in case.jobs]
    return sum(any(starts_s[b] < starts_s[a] for a in names[:k]) for k, b in enumerate(names))


def row(policy: str, runs: Sequence[Run]) -> Sequence[object]:
    """Return the row of a policy: how many workloads have the same order, and how far starts are from each other."""
    pairs = [(case, real, simulated_starts(case)) for case, real in runs]
    same = sum(not reversed_pairs(real, found) for _, real, found in pairs)
    off_s = max(abs(real[name] - found[name]) for _, real, found in pairs for name in real)
    jobs, ahead = sum(len(case.jobs) for case, _ in runs), sum(overtaking(case, real) for case, real in runs)
    return policy, len(runs), jobs, ahead, same, f"{off_s:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=20, help="of each kind")
    parser.add_argument("--at-once", type=int, default=12, help="how many Slurms run at a time")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--record", type=Path, help="write the workloads and Slurm's answers to a file")
    parser.add_argument("--replay", type=Path, help="compare with the answers in a recorded file")
    chosen = parser.parse_args(arguments)
    if chosen.replay:
        runs = recorded(chosen.replay)
    elif missing := missing_programs():
        print(f"no {', '.join(missing)} here: apt-get install slurmctld slurmd slurm-client", file=sys.stderr)
        return 6
    else:
        seeds = range(chosen.first, chosen.first + chosen.workloads)
        cases = [drawn(kind, seed) for kind in chosen.kinds for seed in seeds]
        with ThreadPoolExecutor(chosen.at_once) as pool:
            runs = list(zip(cases, pool.map(real_starts, cases), strict=True))
    if chosen.record:
        write(chosen.record, runs)
    return report(runs)


def write(path: Path, runs: Sequence[Run]) -> None:
    """Write cases with Slurm's answers, one a line."""
    text = (json.dumps({**asdict(case), "start_s": real}) for case, real in runs)
    path.write_text("".join(f"{one}\n" for one in text))


def recorded(path: Path) -> list[Run]:
    """Return the cases of a recorded file, with Slurm's answers."""
    found = []
    for document in map(json.loads, path.read_text().splitlines()):
        real = document.pop("start_s")
        jobs = tuple(SleepJob(**job) for job in document.pop("jobs"))
        found.append((Case(conf=tuple(document.pop("conf")), jobs=jobs, **document), real))
    return found


def report(runs: Sequence[Run]) -> int:
    """Print the table and every case whose order differs, and return the exit code."""
    policies = dict.fromkeys(case.policy for case, _ in runs)
    heads = ("policy", "workloads", "jobs", "that overtake", "same order", "starts differ at most, s")
    print_table(heads, (row(policy, [run for run in runs if run[0].policy == policy]) for policy in policies))
    code = 0
    for case, real in runs:
        found = simulated_starts(case)
        if pairs := reversed_pairs(real, found):
            code = 7
            named = ", ".join(f"{a} before {b}" for a, b in pairs)
            print(f"\n{case.policy} on {case.nodes}x{case.gpus}; only in Slurm {named}\n  {case.conf}")
            for job in case.jobs:
                print(f"  {job}: Slurm {real[job.name]:.0f} s, simulated {found[job.name]:.0f} s")
    return code


if __name__ == "__main__":
    raise SystemExit(main())

"""Grouping of jobs that take turns at the stages of an iteration: Muri's own groups, ours, the optimum and a bound.

Run it as ``python benchmarks/muri_groups.py [FILE ...]`` with files as in ``data/cluster/instances/muri``. One row a
file: number of jobs and GPUs; the sum of normalised throughputs as stated there for Muri, as found anew for Muri's
groups, of our matching and of the optimum, and a bound; CPU seconds of each (Muri's as stated there).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from jigsaw_opt.formulations.interleave import StagedJob, Timing, normalised_throughput
from jigsaw_opt.solvers.allocation.interleave import group_jobs, throughput_bound

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
Found = TypeVar("Found")


class Case(NamedTuple):
    """Jobs on GPUs, Muri's groups of them, and what was measured of these."""

    jobs: list[StagedJob]
    gpus: int
    groups: Counter[tuple[StagedJob, ...]]
    value: float
    cpu: float


def read(path: Path) -> Case:
    """A case from a file; times there are in seconds."""
    document = json.loads(path.read_bytes())
    jobs = [_job(job["num_gpu"], job["resource_time"], job["iteration_time"]) for job in document["jobs"]]
    groups = Counter(tuple(jobs[index] for index in group) for group in document["groups"])
    reference = document["ref"]
    return Case(jobs, document["gpus"], groups, reference["sum_norm_throughput"], reference["cpu"])


def _job(gpus: int, stages: list[float], alone: float) -> StagedJob:
    load, compute, network = (round(seconds * 1e6) for seconds in stages)
    return StagedJob(gpus, load, compute, network, round(alone * 1e6))


def timed(call: Callable[[], Found]) -> tuple[Found, float]:
    started = time.process_time()
    return call(), time.process_time() - started


def row(name: str, case: Case, timing: Timing) -> str:
    again = normalised_throughput(case.groups, timing)
    matching, quick = timed(lambda: group_jobs(case.jobs, case.gpus, "matching", timing))
    exact, slow = timed(lambda: group_jobs(case.jobs, case.gpus, "exact", timing))
    relaxed, bounding = timed(lambda: throughput_bound(case.jobs, case.gpus, timing))
    bound = min(relaxed, exact.bound or relaxed)
    lacks = f"{1 - again / bound:>8.1%}{1 - matching.value / bound:>8.1%}{max(0.0, 1 - exact.value / bound):>8.1%}"
    values = f"{case.value:>11.3f}{again:>11.3f}{matching.value:>11.3f}{exact.value:>11.3f}{bound:>11.3f}"
    times = f"{case.cpu:>8.3f}{quick:>10.4f}{slow:>8.4f}{bounding:>8.4f}"
    return f"{name:<26}{len(case.jobs):>5}{case.gpus:>5}{values}{lacks}{times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", nargs="*", type=Path, default=sorted((SHARED / "data/cluster/instances/muri").glob("*"))
    )
    parser.add_argument(
        "--timing", choices=("published", "steady", "planned"), default="published", help="how jobs take turns"
    )
    asked = parser.parse_args()
    # Loading the engines is no part of what is measured.
    group_jobs([StagedJob(1, 1, 1, 1, 3)], 1, "exact")
    heads = ("Muri", "recomputed", "matching", "exact", "bound")
    print(f"{'':<36}{'sum of normalised throughputs':>55}{'short of bound':>24}{'CPU s':>34}")
    print(
        f"{'file':<26}{'jobs':>5}{'GPUs':>5}"
        + "".join(f"{head:>11}" for head in heads)
        + "".join(f"{head:>8}" for head in ("Muri", "match", "exact", "Muri"))
        + f"{'matching':>10}{'exact':>8}{'bound':>8}"
    )
    for path in asked.files:
        print(row(path.stem, read(path), asked.timing), flush=True)


if __name__ == "__main__":
    main()

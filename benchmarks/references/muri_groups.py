"""Grouping of jobs that take turns at the stages of an iteration: Muri's own groups, ours, the optimum and a bound.

One row a file: number of jobs and GPUs; the sum of normalised throughputs as stated there for Muri, as found anew for
Muri's groups, of our matching and of the optimum, and a bound; how far each is below the bound; CPU seconds of each
(Muri's as stated there).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common import shared, timed

from jigsaw_opt.formulations.interleave.rotation import StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import normalised_throughput
from jigsaw_opt.solvers.allocation.interleave import group_jobs, throughput_bound

HEADS = (
    *("file", "jobs", "GPUs", "Muri", "recomputed", "matching", "exact", "bound"),
    *("Muri short of bound", "matching", "exact", "Muri CPU s", "matching", "exact", "bound"),
)


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, help="as in data/cluster/instances/muri")
    parser.add_argument(
        "--timing", choices=("published", "steady", "planned"), default="published", help="how jobs take turns"
    )


def rows(options: argparse.Namespace) -> Iterator[Sequence[object]]:
    files = options.files or sorted(shared("cluster/instances/muri").glob("*"))
    # Loading the engines is no part of what is measured.
    group_jobs([StagedJob(1, 1, 1, 1, 3)], 1, "exact")
    return (row(path.stem, read(path), options.timing) for path in files)


def row(name: str, case: Case, timing: Timing) -> Sequence[object]:
    again = normalised_throughput(case.groups, timing)
    matching, quick = timed(lambda: group_jobs(case.jobs, case.gpus, "matching", timing))
    exact, slow = timed(lambda: group_jobs(case.jobs, case.gpus, "exact", timing))
    relaxed, bounding = timed(lambda: throughput_bound(case.jobs, case.gpus, timing))
    bound = min(relaxed, exact.bound or relaxed)
    values = (f"{value:.3f}" for value in (case.value, again, matching.value, exact.value, bound))
    lacks = (f"{lack:.1%}" for lack in (1 - again / bound, 1 - matching.value / bound, max(0, 1 - exact.value / bound)))
    times = (f"{seconds:.4f}" for seconds in (quick, slow, bounding))
    return (name, len(case.jobs), case.gpus, *values, *lacks, f"{case.cpu:.3f}", *times)

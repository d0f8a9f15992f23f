"""Gavel, Sia and policies that place each job on one type, on one cluster of three GPU types and a week of Philly.

Run it as ``python benchmarks/mixed_week.py [--jobs N] [--week W] [--seed K] [POLICY...]`` (``JIGSAW_SHARED``). Every so
many jobs of the week keep their submissions and GPUs; jobs of more than 16 GPUs are left out. Philly tells no models:
each job has a model and batch size of Sia's workloads, drawn from those with the most similar number of GPUs, and as
many iterations as last on T4 GPUs as long as Philly says. Types differ by Sia's measured step times. Jobs of ``sia``
alone may have other numbers of GPUs and batch sizes than they ask for, so its row is of another problem. All policies
decide every ten minutes; a restart takes what Sia's authors measured. The first type of the cluster is the T4.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common import print_table, shared, timed

from jigsaw_opt import simulate
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.goodput import Goodput, goodput
from jigsaw_opt.simulation.clusters import grid

CLUSTER = "6x4:aws+2x8:dgx-ext+3x8:rtx"
POLICIES = ("fifo", "sjf_bco", "las", "srtf", "gavel", "gavel:objective=max_min", "sia")
MOST_GPUS, ROUND_S = 16, 600.0
HEADS = ("policy", "mean h", "median h", "p99 h", "makespan h", "restarts a job", "GPU-h a job", "CPU s")


def main() -> None:
    """Print a row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--week", default="2017w46")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cluster = grid(CLUSTER)
    assert cluster is not None
    performance = goodput(shared("cluster/sia/profiles"), cluster, {})
    path = shared("cluster/philly", f"philly_jobs_{options.week}.csv")
    workload = week_of(path, options.jobs, performance, random.Random(options.seed))
    wide = sum(job.gpus > 1 for job in workload.jobs)
    print(f"{len(workload.jobs)} jobs of Philly {options.week}, {wide} of several GPUs, on {CLUSTER}")
    print_table(HEADS, (row(workload, performance, policy) for policy in options.policies))


def week_of(path: Path, count: int, performance: Goodput, draw: random.Random) -> Workload:
    """The jobs of a week at equal distances, with models of Sia's workloads."""
    jobs = [job for job in read_trace("philly", path.read_bytes(), path.name).jobs if job.gpus <= MOST_GPUS]
    known = list(sia_jobs())
    chosen = [jobs[k * len(jobs) // count] for k in range(min(count, len(jobs)))]
    return Workload(path.stem, tuple(with_model(job, known, performance, draw) for job in chosen))


def sia_jobs() -> Iterator[TraceJob]:
    """The jobs of Sia's four workloads from Philly."""
    for number in range(1, 5):
        path = shared(f"cluster/sia/workloads/philly/workload-{number}.csv")
        yield from read_trace("pollux", path.read_bytes(), path.name).jobs


def with_model(job: TraceJob, known: Sequence[TraceJob], performance: Goodput, draw: random.Random) -> TraceJob:
    """A job of Philly with the model and batch size of a similar one of Sia's, and its duration on T4 GPUs."""
    nearest = min(abs(other.gpus - job.gpus) for other in known)
    like = draw.choice([other for other in known if abs(other.gpus - job.gpus) == nearest])
    made = replace(job, model=like.model, batch_size=like.batch_size, iterations=1)
    low, high = 0, 1
    while performance.alone_us(replace(made, iterations=high)) < (job.duration_us or 0):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        short = performance.alone_us(replace(made, iterations=middle)) < (job.duration_us or 0)
        low, high = (middle, high) if short else (low, middle)
    return replace(made, iterations=high)


def row(workload: Workload, performance: Goodput, policy: str) -> Sequence[object]:
    """One line of the table."""
    if policy.partition(":")[0] == "sia":
        adaptive = (replace(job, min_gpus=1, max_gpus=64) for job in workload.jobs)
        workload = replace(workload, jobs=tuple(adaptive))
    found, cpu_s = timed(
        lambda: simulate(workload, performance.cluster, policy, performance=performance, round_s=ROUND_S)
    )
    summary = found.summary
    figures = (summary.mean_completion_h, summary.median_completion_h, summary.p99_completion_h, summary.makespan_h)
    told = ["-" if figure is None else f"{figure:.2f}" for figure in figures]
    return [f"`{policy}`", *told, f"{summary.mean_restarts:.2f}", f"{summary.mean_gpu_hours:.2f}", f"{cpu_s:.0f}"]


if __name__ == "__main__":
    main()

"""Policies of clusters and of papers side by side, on one cluster of three GPU types and a week of Philly.

Run it as ``python benchmarks/mixed_week.py [--jobs N] [--week W] [--seed K] [POLICY...]`` (``JIGSAW_SHARED``). Every so
many jobs of the week keep their submissions and GPUs; jobs of more than 16 GPUs are left out. Philly tells no models:
each job has a model and batch size of Sia's workloads, drawn from those with the most similar number of GPUs, and as
many iterations as last on T4 GPUs as long as Philly says. Types differ by Sia's measured step times. Jobs of ``sia``
alone may have other numbers of GPUs and batch sizes than they ask for, so its row is of another problem. All policies
decide every ten minutes; a restart takes what Sia's authors measured. The first type of the cluster is the T4. Under
``kueue`` every virtual cluster of Philly has an equal share of each type and lends it to the others. The trace states
no limits, so that backfill goes by a day, and no priorities. The last column compares with the first policy: by how
much the tenth of the jobs that is hit worst ends later.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from common import print_table, shared, timed

from jigsaw_opt import simulate
from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.goodput import Goodput, goodput
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.sweeps.job_times import JobTimes, job_changes, job_times

CLUSTER = "6x4:aws+2x8:dgx-ext+3x8:rtx"
POLICIES = (
    *("fifo", "backfill:default_limit=24", "backfill:kind=conservative:default_limit=24", "backfill:estimates=recent"),
    *("multifactor:default_limit=24", "priority", "kueue", "sjf_bco", "las", "srtf"),
    *("gavel", "gavel:objective=max_min", "sia"),
)
MOST_GPUS, ROUND_S = 16, 600.0
HEADS = (
    *("policy", "mean h", "median h", "p99 h", "makespan h", "restarts a job", "GPU-h a job"),
    *("hit worst, later by h", "CPU s"),
)


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
    with TemporaryDirectory() as folder:
        quotas = Path(folder) / "quotas.json"
        quotas.write_text(json.dumps({"items": [*equal_quotas(workload, performance)]}))
        print_table(HEADS, rows(workload, performance, options.policies, quotas))


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


def equal_quotas(workload: Workload, performance: Goodput) -> Iterator[dict[str, object]]:
    """A ClusterQueue for each queue of the workload, all of one cohort, with an equal share of each type of GPU."""
    queues = sorted({job.queue for job in workload.jobs if job.queue})
    types: Counter[str] = Counter()
    for server in performance.cluster.servers:
        types[server.gpu_type] += server.gpus
    for k, name in enumerate(queues):
        flavors = [
            {
                "name": kind,
                "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str((gpus + k) // len(queues))}],
            }
            for kind, gpus in types.items()
        ]
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
        spec = {"cohortName": "all", "resourceGroups": groups, "preemption": {"reclaimWithinCohort": "Any"}}
        yield {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": spec,
        }


def rows(workload: Workload, performance: Goodput, policies: Sequence[str], quotas: Path) -> Iterator[Sequence[object]]:
    """Yield a line of the table for each policy."""
    first: JobTimes = ()
    for policy in policies:
        adaptive = (replace(job, min_gpus=1, max_gpus=64) for job in workload.jobs)
        given = replace(workload, jobs=tuple(adaptive)) if policy.partition(":")[0] == "sia" else workload
        words = f"{policy}:config={quotas}" if policy.partition(":")[0] == "kueue" else policy
        found, cpu_s = timed(
            lambda given=given, words=words: simulate(
                given, performance.cluster, words, performance=performance, round_s=ROUND_S
            )
        )
        times = job_times(found.outcome)
        first = first or times
        changes = job_changes(workload.jobs, first, times)
        summary = found.summary
        figures = (summary.mean_completion_h, summary.median_completion_h, summary.p99_completion_h, summary.makespan_h)
        told = ["-" if figure is None else f"{figure:.2f}" for figure in figures]
        told += [f"{summary.mean_restarts:.2f}", f"{summary.mean_gpu_hours:.2f}"]
        yield [f"`{policy}`", *told, "-" if changes is None else f"{changes.hit_later_h:.2f}", f"{cpu_s:.0f}"]


if __name__ == "__main__":
    main()

"""CPU time of a simulated week: 5000 jobs of Philly on 64 servers of 8 V100, policy by policy.

Run it as ``python benchmarks/simulated_week.py [--stretch N] [--foreground-gpus K] [--failures WORDS] [POLICY...]``.
Submissions, GPUs and durations are those of the first 5000 jobs of a week of Philly (``JIGSAW_SHARED``) that ask for at
most 512 GPUs, models are drawn from the bundled instance ``server/plain``. As it is the week leaves GPUs free; with
durations stretched four times jobs queue. Failures are in the words of ``jigsaw simulate``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from common import outcome_of, print_table, shared, timed

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.instances import load
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.mix import with_models
from jigsaw_opt.simulation.parse_failures import failures_of
from jigsaw_opt.simulation.setting import Setting

JOBS = 5000
HEADS = ("policy", "CPU s", "rounds", "most waiting", "mean completion h", "utilisation", "efficiency", "p95 policy ms")
FAILURE_HEADS = ("makespan h", "restarts", "stops", "lost GPU-h", "lost of held", "availability")
FOREGROUND_HEADS = ("background mean h", "foreground mean h", "slow-down", "at worst", "makespan h", "restarts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=["fifo", "srtf", "las"])
    parser.add_argument("--stretch", type=int, default=1, metavar="N", help="make every job so many times as long")
    parser.add_argument(
        "--foreground-gpus", type=int, metavar="K", help="jobs of at least K GPUs are in the foreground"
    )
    parser.add_argument("--failures", default="", metavar="WORDS", help="as in mtbf=500,mttr=4")
    arguments = parser.parse_args()
    setting = week(arguments.stretch, arguments.foreground_gpus)
    setting = replace(setting, failures=failures_of(arguments.failures, setting.cluster, setting.seed))
    heads = HEADS if arguments.foreground_gpus is None else (*HEADS, *FOREGROUND_HEADS)
    heads = heads if setting.failures is None else (*HEADS, *FAILURE_HEADS)
    print_table(heads, (row(setting, text)[: len(heads)] for text in arguments.policies))


def week(stretch: int, foreground_gpus: int | None) -> Setting:
    cluster = grid("64x8:v100")
    assert cluster is not None
    file = shared("cluster/philly/philly_jobs_2017w46.csv")
    trace = read_trace("philly", file.read_bytes(), str(file))
    fitting = [job for job in trace.jobs if job.gpus <= cluster.gpu_count][:JOBS]
    jobs = [replace(job, iterations=stretch * (job.iterations or 0)) for job in fitting]
    if foreground_gpus is not None:
        jobs = [replace(job, foreground=job.gpus >= foreground_gpus) for job in jobs]
    performance = Profiled(cluster, load("server/plain").models)
    workload = with_models(Workload("week", tuple(jobs)), performance, sorted(performance.models), seed=0)
    return Setting(cluster, workload, performance)


def row(setting: Setting, text: str) -> tuple[str, ...]:
    outcome, seconds = timed(lambda: outcome_of(Simulation(setting.under(text))))
    summary = summarise(setting, outcome)
    waiting = max(record.active - record.running for record in outcome.rounds)
    measures = (summary.mean_completion_h, summary.utilisation, summary.cluster_efficiency, summary.p95_policy_ms)
    of_kinds = (
        *(summary.mean_background_completion_h, summary.mean_foreground_completion_h),
        *(summary.mean_foreground_slowdown, summary.worst_foreground_slowdown, summary.makespan_h),
    )
    shown = ["-" if measure is None else f"{measure:.3f}" for measure in (*measures, *of_kinds)]
    first = (f"`{text}`", f"{seconds:.1f}", f"{summary.rounds}", f"{waiting}")
    if setting.failures is None:
        return (*first, *shown, f"{summary.restarts}")
    return (*first, *shown[: len(measures)], *of_failures(summary))


def of_failures(summary: SimulationSummary) -> tuple[str, ...]:
    lost = summary.lost_gpu_hours / summary.gpu_hours
    counts = (f"{summary.makespan_h:.0f}", f"{summary.restarts}", f"{summary.failure_stops}")
    return (*counts, f"{summary.lost_gpu_hours:.0f}", f"{lost:.4f}", f"{summary.availability:.4f}")


if __name__ == "__main__":
    main()

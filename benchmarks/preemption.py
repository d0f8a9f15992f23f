"""Waiting and restarts of preemptive policies with and without hysteresis and aging, on weeks of two clusters.

Run it as ``python benchmarks/preemption.py [--restart SECONDS] [--jobs N] [POLICY...]``. The traces are a week of
Philly on 48 servers of 8 GPUs and cluster 04 of Microsoft's ITP on 16 (``JIGSAW_SHARED``), jobs of more GPUs left out.
For ``jigsaw`` models are drawn from the bundled instance ``server/plain``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from common import outcome_of, print_table, shared, timed

from jigsaw_opt.instances import load
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.reading import read_setting

TRACES = {
    "philly": ("philly:cluster/philly/philly_jobs_2017w46.csv", "32x8:v100"),
    "itp": ("itp:cluster/microsoft_itp/raw/cluster04.csv", "96x8:v100"),
}
POLICIES = (
    *("fifo", "srtf:hysteresis=0", "srtf", "srtf:hysteresis=4", "srtf:aging=24"),
    *("las", "las:aging=24"),
)
HEADS = ("trace", "policy", "mean h", "mean wait h", "p99 wait h", "longest wait h", "its GPUs", "restarts", "CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--trace", nargs="+", default=list(TRACES), choices=TRACES)
    parser.add_argument("--restart", type=float, default=300.0)
    parser.add_argument("--jobs", type=int, default=10**9)
    arguments = parser.parse_args()
    print_table(HEADS, (row(name, policy, arguments) for name in arguments.trace for policy in arguments.policies))


def row(trace: str, policy: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    words, cluster = TRACES[trace]
    kind, _, file = words.partition(":")
    drawn = policy.startswith("jigsaw")
    setting = read_setting(
        f"{kind}:{shared(file)}",
        cluster,
        policy,
        performance=(lambda cluster: Profiled(cluster, load("server/plain").models)) if drawn else "",
        draw_models=drawn,
        restart_s=arguments.restart,
        too_wide="skip",
    )
    workload = replace(setting.workload, jobs=setting.workload.jobs[: arguments.jobs])
    setting = replace(setting, workload=workload)
    outcome, seconds = timed(lambda: outcome_of(Simulation(setting)))
    summary = summarise(setting, outcome)
    hours = (
        summary.mean_completion_h,
        summary.mean_waiting_h,
        summary.p99_waiting_h,
        summary.longest_waiting_h,
    )
    return (
        trace,
        f"`{policy}`",
        *(f"{value:.2f}" for value in hours),
        f"{summary.longest_waiting_gpus}",
        f"{summary.restarts}",
        f"{seconds:.0f}",
    )


if __name__ == "__main__":
    main()

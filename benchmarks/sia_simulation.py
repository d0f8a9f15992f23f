"""Sia and Gavel on the shared 64-GPU workloads of Sia, against what Sia's own simulator gave.

Run it as ``python benchmarks/sia_simulation.py``; about a minute of CPU. Jobs of ``sia`` are adaptive and decided every
60 s, those of ``gavel`` (maximal sum of throughput) keep GPUs and batch size of the trace and are decided every 360 s,
as in the authors' experiments. The differences of the models are listed in docs/policies.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product

from common import print_table, shared

from jigsaw_opt import simulate
from jigsaw_opt.simulation.metrics import SimulationSummary

CLUSTER = "6x4:aws+2x8:dgx-ext+3x8:rtx"
ROUNDS = {"sia": 60.0, "gavel": 360.0}
FORMATS = {"sia": "sia", "gavel": "pollux"}
REFERENCES = {
    ("philly/workload-1", "sia"): (0.539, 8.09, 15.30),
    ("saturn/workload-1", "sia"): (0.580, 8.54, 11.95),
    ("philly/workload-1", "gavel"): (1.671, 28.2, 35.63),
    ("saturn/workload-1", "gavel"): (1.798, 21.8, 27.27),
}
"""Mean and p99 completion, and makespan, in hours."""
HEADS = (
    *("workload", "policy", "mean h", "reference", "difference", "p99 h", "reference", "makespan h", "reference"),
    *("restarts a job", "GPU-h a job", "policy p95 ms"),
)


def simulated(workload: str, policy: str) -> SimulationSummary:
    """Measures of one simulation."""
    found = simulate(
        workload=f"{FORMATS[policy]}:{shared('cluster/sia/workloads', f'{workload}.csv')}",
        cluster=CLUSTER,
        policy=policy,
        performance=f"goodput:{shared('cluster/sia/profiles')}",
        round_s=ROUNDS[policy],
    )
    return found.summary


def row(workload: str, policy: str) -> Sequence[object]:
    """One line of the table."""
    found = simulated(workload, policy)
    assert found.mean_completion_h is not None and found.p99_completion_h is not None
    mean, p99, makespan = REFERENCES.get((workload, policy), (None, None, None))
    difference = "-" if mean is None else f"{100 * (found.mean_completion_h / mean - 1):+.1f} %"
    cells: list[object] = [workload, policy, f"{found.mean_completion_h:.3f}", mean or "-", difference]
    cells += [f"{found.p99_completion_h:.2f}", p99 or "-", f"{found.makespan_h:.2f}", makespan or "-"]
    cells += [f"{found.mean_restarts:.1f}", f"{found.mean_gpu_hours:.2f}", f"{found.p95_policy_ms:.0f}"]
    return cells


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    workloads = sorted({workload for workload, _ in REFERENCES})
    parser.add_argument("workloads", nargs="*", default=workloads, help="as in philly/workload-2")
    parser.add_argument("--policy", nargs="*", default=["sia", "gavel"])
    options = parser.parse_args()
    shared("cluster/sia")
    print_table(HEADS, (row(*each) for each in product(options.workloads, options.policy)))


if __name__ == "__main__":
    main()

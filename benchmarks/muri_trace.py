"""A trace of Muri under its own assumptions: SRSF, groups as Muri makes them, and what timetables and SPB add.

Run it as ``python benchmarks/muri_trace.py [TRACE.csv]``, by default Muri's trace 3 on 8 servers of 8 GPUs. One row a
policy: mean, median and p99 of the completion times, the mean relative to Muri-S and to the row before, makespan,
restarts, and the CPU time of the policy. What Muri's own simulator gave stands in the first two rows.

Assumptions: stages and times of iterations as in the trace, with the measured cost of sharing of Muri's simulator;
decisions at every arrival and end; a start on other GPUs costs 10 s (Muri: 4 to 46 s by model, at every event). The
trace does not split the GPU stage, so the backward pass is taken as two thirds of it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from common import outcome_of, shared, shared_if_there

from jigsaw_opt.documents.readers.muri import read_muri
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.setting import Setting

TRACE = ("cluster", "muri", "trace3.csv")
RESTART_US = 10_000_000
POLICIES = (
    "srtf",
    "srtf:measure=service",
    "interleave:service=attained",
    "interleave:groups=matching",
    "interleave",
    "jigsaw:depth=full",
    "jigsaw",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a policy of Muri's simulator gave on trace 3: mean and p99 of completion times, makespan, in seconds."""

    name: str
    mean: int
    p99: int
    makespan: int


REFERENCES = (Reference("SRSF", 185_022, 4_189_699, 8_174_135), Reference("Muri-S", 83_242, 947_437, 8_174_135))
MURI_S = REFERENCES[-1].mean


def setting(trace: Path, servers: int, gpus: int) -> Setting:
    workload = read_muri(trace.read_bytes(), trace.name)
    cluster = Cluster(tuple(Server(f"s{k}", "gpu", gpus, 1, 1) for k in range(servers)))
    return Setting(cluster, workload, Stages(workload.stages), round_us=0, restart_us=RESTART_US)


def simulated(where: Setting, policy: str) -> SimulationSummary:
    return summarise(where, outcome_of(Simulation(where.under(policy))))


def row(policy: str, summary: SimulationSummary, muri: float | None, before: float | None) -> str:
    mean, median, p99 = (
        3600 * (hours or 0.0)
        for hours in (summary.mean_completion_h, summary.median_completion_h, summary.p99_completion_h)
    )
    over = "" if muri is None else f"{mean / muri:.3f}"
    change = "" if before is None else f"{mean / before - 1:+.1%}"
    times = f"{mean:>10,.0f}{median:>9,.0f}{p99:>11,.0f}{3600 * summary.makespan_h:>11,.0f}"
    cpu = f"{summary.median_policy_ms:>9.1f}{summary.p95_policy_ms:>8.1f}"
    return f"{policy:<28}{times}{over:>8}{change:>8}{summary.restarts:>9}{cpu}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, help="default: trace 3 of the measured data")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=8, help="of each server")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="POLICY")
    asked = parser.parse_args()
    trace = asked.trace or shared(*TRACE)
    own = trace == shared_if_there(*TRACE)
    where = setting(trace, asked.servers, asked.gpus)
    print(f"{'':<28}{'completion, s':>30}{'':>11}{'mean over':>16}{'':>9}{'policy, CPU ms':>17}")
    heads = f"{'mean':>10}{'median':>9}{'p99':>11}{'makespan s':>11}{'Muri-S':>8}{'before':>8}{'restarts':>9}"
    print(f"{'policy':<28}{heads}{'median':>9}{'p95':>8}")
    if own:
        for reference in REFERENCES:
            times = f"{reference.mean:>10,}{'':>9}{reference.p99:>11,}{reference.makespan:>11,}"
            print(f"{reference.name + ' (Muri)':<28}{times}{reference.mean / MURI_S:>8.3f}")
    before, muri = None, MURI_S if own else None
    for policy in asked.policies:
        summary = simulated(where, policy)
        print(row(policy, summary, muri, before), flush=True)
        before = 3600 * (summary.mean_completion_h or 0.0)


if __name__ == "__main__":
    main()

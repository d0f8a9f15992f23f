"""CPU time of a simulated week: 5000 jobs of Philly on 64 servers of 8 V100, policy by policy.

Run it as ``python benchmarks/simulated_week.py [POLICY...]``. Submissions, GPUs and durations are those of the first
5000 jobs of a week of Philly (``JIGSAW_SHARED``) that ask for at most 512 GPUs, models are drawn from the bundled
instance ``server/plain``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from jigsaw_opt.documents.readers.traces import read_trace
from jigsaw_opt.instances import load
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.mix import with_models
from jigsaw_opt.simulation.performance.profiled import Profiled
from jigsaw_opt.simulation.policy import Setting, choose

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
TRACE = SHARED / "data" / "cluster" / "philly" / "philly_jobs_2017w46.csv"
JOBS = 5000


def main() -> None:
    setting = week()
    print("| policy | CPU s | rounds | mean completion h | utilisation | efficiency | policy ms a round, p95 |")
    print("|---|---|---|---|---|---|---|")
    for text in sys.argv[1:] or ("fifo", "srtf", "las"):
        print(row(setting, text))


def week() -> Setting:
    cluster = grid("64x8:v100")
    assert cluster is not None
    trace = read_trace("philly", TRACE.read_bytes(), str(TRACE))
    jobs = [job for job in trace.jobs if job.gpus <= cluster.gpu_count][:JOBS]
    performance = Profiled(cluster, load("server/plain").models)
    workload = with_models(Workload("week", tuple(jobs)), performance, sorted(performance.models), seed=0)
    return Setting(cluster, workload, performance)


def row(setting: Setting, text: str) -> str:
    began = time.process_time()
    simulation = Simulation(setting, *choose(text))
    simulation.run()
    outcome = simulation.close()
    seconds = time.process_time() - began
    summary = summarise(setting, outcome)
    measures = (summary.mean_completion_h, summary.utilisation, summary.cluster_efficiency, summary.p95_policy_ms)
    return f"| {text} | {seconds:.1f} | {summary.rounds} | {' | '.join(f'{m:.3f}' for m in measures)} |"


if __name__ == "__main__":
    main()

"""A `LiveScheduler` as a policy of somebody else's simulator: Gavel's (OSDI 2020), beside policies of its own.

Run it with the interpreter of an environment that has ``jigsaw_opt`` and ``cvxpy`` as
``python benchmarks/gavel_simulator.py GAVEL/scheduler TRACE [--jobs N] [--gpus N] [POLICY...]``, where GAVEL is a copy
of its repository and TRACE one of its traces. A policy is ``live:NAME``, any of ours, or one of Gavel's. `LivePolicy`
is all that the two need to talk.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import JobFinished, JobProgressed, JobSubmitted, LiveScheduler
from jigsaw_opt.simulation.clusters import grid

GPUS_A_SERVER = 4
DEFAULT = ("fifo", "max_min_fairness", "finish_time_fairness", "live:fifo", "live:las", "live:srtf")


class LivePolicy:
    """What Gavel asks of a policy, answered by a live scheduler: which jobs have their GPUs until it asks again."""

    name = "MinTotalDuration_live"  # by this name Gavel tells how many steps are left

    def __init__(self, policy: str, gpus: int) -> None:
        cluster = grid(f"{gpus // GPUS_A_SERVER}x{GPUS_A_SERVER}:v100")
        assert cluster is not None
        self.live = LiveScheduler(cluster, policy, round_us=0)
        self.seconds: dict[Any, float] = {}
        self.running: set[str] = set()
        self.now_us = 0

    def get_allocation(self, throughputs: Any, scale_factors: Any, steps_left: Any, cluster_spec: Any) -> Any:
        """The share of time of each job by type of GPU."""
        self.now_us += 1
        for job in [job for job in self.seconds if job not in throughputs]:
            self.live.handle(JobFinished(self.now_us, str(job)))
            self.running.discard(str(job))
            del self.seconds[job]
        for job in sorted(throughputs):
            left = steps_left[job] / throughputs[job]["v100"]
            if job not in self.seconds:
                self.seconds[job] = left
                asked = TraceJob(str(job), 0, "seconds", scale_factors[job], max(1, round(left)))
                self.live.handle(JobSubmitted(self.now_us, asked))
            else:
                self.live.handle(JobProgressed(self.now_us, str(job), max(0.0, self.seconds[job] - left)))
        change = self.live.step(self.now_us)
        self.running.difference_update(stop.job for stop in change.stops)
        self.running.update(start.to.job for start in change.starts)
        given = {job: float(str(job) in self.running) for job in throughputs}
        return {job: {kind: given[job] if kind == "v100" else 0.0 for kind in cluster_spec} for job in throughputs}


def without_runtime() -> None:
    """Stand in for what Gavel imports to run on real servers: its generated messages, and an estimator."""
    for name in ("runtime", "runtime.rpc", "matrix_completion"):
        sys.modules[name] = ModuleType(name)
    for name in ("scheduler_server", "scheduler_client"):
        sys.modules[f"runtime.rpc.{name}"] = ModuleType(name)
        setattr(sys.modules["runtime.rpc"], name, sys.modules[f"runtime.rpc.{name}"])


def simulated(asked: argparse.Namespace, policy: str) -> tuple[float, float, float]:
    """Mean completion and makespan in hours, and the seconds that it took."""
    import scheduler
    import utils

    jobs, arrivals = utils.parse_trace(str(asked.trace))
    kept = [k for k, job in enumerate(jobs) if job.scale_factor <= asked.gpus][: asked.jobs]
    name = policy.removeprefix("live:")
    chosen = utils.get_policy(policy, solver="SCS", seed=0) if name == policy else LivePolicy(name, asked.gpus)
    throughputs = str(asked.gavel / "simulation_throughputs.json")
    gavel = scheduler.Scheduler(chosen, simulate=True, throughputs_file=throughputs, seed=0, time_per_iteration=360)
    spec = {"v100": asked.gpus, "p100": 0, "k80": 0}
    servers = dict.fromkeys(spec, GPUS_A_SERVER)
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        gavel.simulate(spec, [arrivals[k] for k in kept], [jobs[k] for k in kept], num_gpus_per_server=servers)
        mean_s = gavel.get_average_jct()
    return mean_s / 3600, gavel.get_current_timestamp() / 3600, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gavel", type=Path)
    parser.add_argument("trace", type=Path)
    parser.add_argument("policies", nargs="*", default=DEFAULT)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=16)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    without_runtime()
    sys.path.insert(0, str(asked.gavel))
    print("policy                mean completion h   last end h   s")
    for policy in asked.policies:
        mean_h, end_h, took_s = simulated(asked, policy)
        print(f"{policy:22}{mean_h:18.2f}{end_h:13.1f}{took_s:6.1f}", flush=True)


if __name__ == "__main__":
    main()

"""What knowing the future is worth: a sample of a Philly week planned offline as a phased plan, beside policies.

Run it as ``python benchmarks/offline_week.py [--servers N] [--load L] [--seconds S] [--seed K] [POLICY...]``. Jobs are
drawn as in ``cluster_efficiency.py`` (``JIGSAW_SHARED``), for few servers. All releases and iterations are known to the
phased plan (`solve_phased`, sum of completions), whose jobs stay on their GPUs or, with moves, go on elsewhere at no
cost. Policies see a job when it is submitted, may
preempt and move it, and pay nothing for a start. The bound is one of all plans of the instance.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import product
from statistics import fmean, median

from cluster_efficiency import DAY_US, saturated
from common import outcome_of

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Depth, FreeDepth, FullDepth, Job
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import solve_phased
from jigsaw_opt.solvers.result import Result

POLICIES = ("fifo", "las", "srtf", "jigsaw:depth=full", "jigsaw")
DEPTHS: dict[str, Depth] = {"full": FullDepth(), "free": FreeDepth()}
HOUR_US = DAY_US / 24


def main() -> None:
    """Print a row for each policy and for each offline plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=40.0, help="for each offline plan")
    parser.add_argument("--week", default="2017w46")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    setting = saturated(arguments.week, arguments.load, arguments.seed, arguments.servers)
    setting = replace(setting, restart_us=0)
    print(f"{len(setting.workload.jobs)} jobs, {setting.gpu_count} GPUs, load {arguments.load}, seed {arguments.seed}")
    print("| who | mean completion h | median | last job h | bound of the mean | s |")
    print("|---|---|---|---|---|---|")
    for text in arguments.policies:
        began = time.monotonic()
        tell(setting, f"`{text}`", simulated(setting, text), None, time.monotonic() - began)
    for (name, depth), moves in product(DEPTHS.items(), (False, True)):
        result = solve_phased(instance_of(setting, depth, moves), Options(time_limit=arguments.seconds))
        who = f"offline, {name}{', with moves' if moves else ''}"
        tell(setting, who, ends_of(result), result.bound, result.seconds)


def simulated(setting: Setting, text: str) -> dict[str, float]:
    """When each job ends under a policy, in microseconds."""
    jobs, outcome = setting.workload.jobs, outcome_of(Simulation(setting.under(text)))
    return {jobs[job.index].name: job.finish_us for job in outcome.jobs if job.finish_us is not None}


def instance_of(setting: Setting, depth: Depth, moves: bool) -> Instance:
    """The jobs of a setting as one instance, each released when it is submitted."""
    assert isinstance(setting.performance, Profiled)
    jobs = tuple(
        Job(
            job.name,
            job.model,
            job.gpus,
            job.iterations or 1,
            job.submit_us,
            1,
            depth if job.gpus > 1 else FullDepth(),
            restart_us=setting.restart_us if moves else None,
        )
        for job in setting.workload.jobs
    )
    models = dict(setting.performance.models)
    return Instance(setting.workload.name, setting.cluster, models, jobs, "finite", "weighted_completion")


def ends_of(result: Result) -> dict[str, float]:
    """When each job ends in a phased plan, in microseconds."""
    if result.plan is None:
        return {}
    return {
        job.name: replace(phase, jobs=(job,)).end_us for _, _, phase in result.plan.all_phases() for job in phase.jobs
    }


def tell(setting: Setting, name: str, ends: dict[str, float], bound: int | None, seconds: float) -> None:
    """Print a row."""
    submitted = {job.name: job.submit_us for job in setting.workload.jobs}
    hours = [(end - submitted[job]) / HOUR_US for job, end in ends.items()]
    least = "" if bound is None else f"{(bound - sum(submitted.values())) / len(submitted) / HOUR_US:.2f}"
    shown = (f"{fmean(hours):.2f}", f"{median(hours):.2f}", f"{max(ends.values()) / HOUR_US:.0f}") if hours else "---"
    print(f"| {name} | {' | '.join(shown)} | {least} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()

"""What instances of the family `crowded` are like: how long the longest job is beside the load, and greedy's plan.

Run it as ``python benchmarks/crowded_family.py --seeds 1000 1096 --gpus 64``. One table row an instance of at most so
many GPUs. ``longest`` is the longest job alone over the bound on the makespan of the same jobs, in percent.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import median

from jigsaw_opt.instances import generate
from jigsaw_opt.instances.crowded import crowded
from jigsaw_opt.problem import Instance, compile_instance, critical
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.result import relative_gap


def alone_us(instance: Instance) -> int:
    """Least time of the job that takes longest on an empty cluster."""
    operations = compile_instance(instance)
    sites = (critical.sites(operations, job, critical.usable_gpus(operations, job)) for job in operations.jobs)
    return max(critical.least_span_us(job, where) for job, where in zip(operations.jobs, sites, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1000, 1024), metavar=("FIRST", "END"))
    parser.add_argument("--gpus", type=int, default=64, help="leave out larger instances")
    asked = parser.parse_args()
    print("| instance | GPUs | jobs | blocks | longest | what bounds | greedy's gap |\n|---|---|---|---|---|---|---|")
    longest, planned = [], 0
    for seed in range(*asked.seeds):
        recipe = crowded(seed, {})
        if recipe.servers * recipe.gpus > asked.gpus:
            continue
        instance = generate("crowded", seed)
        operations = compile_instance(instance)
        load = lower_bound(compile_instance(replace(instance, objective="makespan", horizon="finite")))
        longest.append(alone_us(instance) / load.value)
        plan = greedy_timetable(operations, 0)
        planned += plan is not None
        objective = None if plan is None else objective_of(operations, plan.jobs, plan.period_us)
        gap = "no plan" if objective is None else f"{relative_gap(objective, lower_bound(operations).value):.1%}"
        cells = (instance.name, instance.cluster.gpu_count, len(instance.jobs), operations.blocks)
        print("|", " | ".join(map(str, (*cells, f"{longest[-1]:.0%}", load.reason, gap))), "|", flush=True)
    middle, most = median(longest), max(longest)
    print(f"\n{len(longest)} instances, longest job: median {middle:.1%}, worst {most:.1%}; plans of greedy: {planned}")


if __name__ == "__main__":
    main()

"""Cheap bound, stronger bound and best plan at hand side by side: one table row an instance of makespan or period.

Run it as ``python benchmarks/bounds_at_scale.py``. The instances are the bundled ones of some sets, others of the same
families, and cyclic clusters with four workers a GPU. Seconds are CPU seconds of each bound; the plan is
greedy's or, for a bundled instance, the best one recorded.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence

from common import print_table, timed

from jigsaw_opt.instances import catalogue
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.bounds import Bound, lower_bound, stronger_bounds
from jigsaw_opt.solvers.greedy import greedy_timetable

CYCLIC_CLUSTER = 103
"""A seed of the family that makes a cyclic cluster."""


def instances(sets: list[str], seeds: int, servers: list[int]) -> Iterator[Instance]:
    """Bundled instances, generated ones from seed 100 on, and loaded cyclic clusters."""
    for name in sets:
        yield from map(catalogue.load, catalogue.names(name))
        yield from (generate(name, seed) for seed in range(100, 100 + seeds))
    for count in servers:
        yield generate("cluster", CYCLIC_CLUSTER, load=400, servers=count)


def row(instance: Instance, work: float) -> Sequence[object]:
    """One line of the table."""
    operations = compile_instance(instance)
    cheap, cheap_seconds = timed(lambda: lower_bound(operations))
    strong, strong_seconds = timed(lambda: [cheap, *stronger_bounds(operations, cheap.value, work)][-1])
    plan = best_plan(operations)
    return [
        instance.name,
        sum(job.workers for job in instance.jobs),
        cheap.value,
        f"{cheap_seconds:.2f}",
        strong.value,
        f"{strong_seconds:.2f}",
        f"{100 * (strong.value / cheap.value - 1):.2f}%",
        plan,
        gap(cheap, plan),
        gap(strong, plan),
        strong.reason,
    ]


def best_plan(operations: Operations) -> int | None:
    """Objective of the best plan at hand."""
    timetable = greedy_timetable(operations, 0)
    found = [] if timetable is None else [objective_of(operations, timetable.jobs, timetable.period_us)]
    name = operations.instance.name.replace("-", "/", 1)
    recorded = catalogue.best_known(name) if name in catalogue.names() else None
    if recorded is not None and recorded.objective is not None:
        found.append(recorded.objective)
    return min(found, default=None)


def gap(bound: Bound, plan: int | None) -> str:
    """Relative gap between a bound and a plan."""
    return "-" if plan is None else f"{100 * (1 - bound.value / plan):.2f}%"


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="*", default=["server", "rack", "pod", "cluster"], help="families")
    parser.add_argument("--seeds", type=int, default=0, help="instances of each family beside the bundled ones")
    parser.add_argument("--servers", type=int, nargs="*", default=[128], help="sizes of the loaded cyclic cluster")
    parser.add_argument("--work", type=float, default=math.inf, help="limit of work for each instance")
    options = parser.parse_args()
    heads = ["instance", "workers", "cheap", "s", "stronger", "s", "more", "plan", "gap", "stronger gap", "reason"]
    asked = instances(options.set, options.seeds, options.servers)
    print_table(heads, (row(each, options.work) for each in asked if each.objective != "weighted_completion"))


if __name__ == "__main__":
    main()

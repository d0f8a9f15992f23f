"""Every bundled `tiny` instance by both exact solvers: same proven objective, and how long each takes.

Run ``python benchmarks/exact_tiny.py [--set tiny] [--time-limit 60] [--workers 2]``. Exit code 1 where two proven
objectives differ, or one differs from the stored value.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from jigsaw_opt.instances import best_known, load, names
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, refusal
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve import solve

SOLVERS = ("cpsat", "ilp")


def outcomes(instance: Instance, options: Options) -> dict[str, Result]:
    able = [name for name in SOLVERS if refusal(find(name), instance) is None]
    return {name: solve(instance, name, options) for name in able}


def shown(result: Result | None) -> str:
    if result is None:
        return f"{'cyclic':>28}"
    return f"{result.objective or 0:>10} {result.status:>9} {result.seconds:6.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="tiny")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    options = Options(time_limit=arguments.time_limit, threads=arguments.workers)
    seconds: dict[str, list[float]] = {name: [] for name in SOLVERS}
    unproven, wrong = 0, 0
    print(f"{'instance':<24} {'cpsat':^28} {'ilp':^28}  stored")
    for name in names(arguments.set):
        results, stored = outcomes(load(name), options), best_known(name)
        for solver, result in results.items():
            seconds[solver].append(result.seconds)
            unproven += result.status != "optimal"
        proven = {result.objective for result in results.values() if result.status == "optimal"}
        proven |= {stored.objective} if stored is not None and stored.optimal else set()
        wrong += len(proven) > 1
        row = " ".join(shown(results.get(solver)) for solver in SOLVERS)
        print(f"{name:<24} {row}  {stored.objective if stored else '-'}{'  DIFFER' * (len(proven) > 1)}", flush=True)
    for solver, times in seconds.items():
        middle, most = statistics.median(times), max(times)
        print(f"{solver}: {len(times)} solves, median {middle:.2f} s, worst {most:.2f} s, total {sum(times):.0f} s")
    print(f"unproven: {unproven}; differing: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

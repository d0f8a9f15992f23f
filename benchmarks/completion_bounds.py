"""Bounds on the weighted sum of ends: the cheap one, the stronger ones, and what a plan needs.

Run it as ``python benchmarks/completion_bounds.py server:5 rack:4``, with instances as family and seed. One row an
instance: the two bounds, CPU seconds of the stronger one, the best plan found, and the gap to it with each.
"""

from __future__ import annotations

import argparse

from common import timed

from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.bounds import lower_bound, stronger_bounds
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import relative_gap
from jigsaw_opt.solvers.solve import solve

DEFAULT = ("server:5", "server:12", "rack:4", "server:21", "server:28", "rack:14", "server:37", "server:44", "rack:24")


def row(family: str, seed: int, solver: str, seconds: float) -> str:
    instance = generate(family, seed)
    operations = compile_instance(instance)
    cheap = lower_bound(operations).value
    strong, spent = timed(lambda: max([cheap, *(bound.value for bound in stronger_bounds(operations, cheap))]))
    plan = solve(instance, solver, Options(time_limit=seconds, threads=2)).objective
    gaps = ["-" if plan is None else f"{relative_gap(plan, bound):.2%}" for bound in (cheap, strong)]
    found = f"{spent:>8.2f}{plan or '-':>12}{gaps[0]:>9}{gaps[1]:>9}"
    return f"{instance.name:<32}{len(operations.jobs):>5}{cheap:>12}{strong:>12}{found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instances", nargs="*", default=DEFAULT, metavar="FAMILY:SEED")
    parser.add_argument("--solver", default="cpsat")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of the solver")
    asked = parser.parse_args()
    print(f"{'instance':<32}{'jobs':>5}{'cheap':>12}{'strong':>12}{'CPU s':>8}{'plan':>12}{'cheap':>9}{'strong':>9}")
    for name in asked.instances:
        family, seed = name.split(":")
        print(row(family, int(seed), asked.solver, asked.seconds), flush=True)


if __name__ == "__main__":
    main()

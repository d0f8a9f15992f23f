"""Certified gap of ``cpsat`` beside that of a plain CP-SAT model, with the same limit and cores.

Prints one row an instance of a bundled set and the mean gaps:
``python benchmarks/peers/cpsat_vs_plain.py --set server``. An instance without a plan counts as a gap of 100 %.
"""

from __future__ import annotations

import argparse
import math
from statistics import fmean
from typing import NamedTuple

import plain_cpsat
from attempt import Attempt
from run_one import stated_plan

from jigsaw_opt.checking import check
from jigsaw_opt.instances.catalogue import load, names
from jigsaw_opt.problem import Instance, Plan, compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import relative_gap
from jigsaw_opt.solvers.solve import solve


class Outcome(NamedTuple):
    """What one solve is judged by."""

    objective: int | None
    bound: int
    seconds: float

    @property
    def gap(self) -> float:
        """Relative gap; all of the objective where there is no plan."""
        return 1.0 if self.objective is None else relative_gap(self.objective, self.bound)


def solve_ours(instance: Instance, seconds: float, workers: int) -> Outcome:
    result = solve(instance, "cpsat", Options(time_limit=seconds, threads=workers))
    _require_correct(instance, result.plan)
    return Outcome(result.objective, result.bound, result.seconds)


def solve_plain(instance: Instance, seconds: float, workers: int) -> Outcome:
    attempt = Attempt(compile_instance(instance), seconds, workers)
    plain_cpsat.solve(attempt)
    _require_correct(instance, stated_plan(attempt, "plain-cpsat"))
    return Outcome(attempt.objective, attempt.bound or 0, attempt.elapsed)


def _require_correct(instance: Instance, plan: Plan | None) -> None:
    violations = check(instance, plan) if plan is not None else ()
    if violations:
        raise SystemExit(f"{instance.name}: a wrong plan: {violations[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="server")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds a solve")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    gaps: list[tuple[float, float]] = []
    print(f"{'instance':32}{'cpsat':>14}{'bound':>14}{'gap':>8}{'s':>6}{'plain':>14}{'bound':>14}{'gap':>8}{'s':>6}")
    for name in names(arguments.set):
        instance = load(name)
        if instance.horizon != "finite":
            continue
        both = [solve(instance, arguments.time_limit, arguments.workers) for solve in (solve_ours, solve_plain)]
        gaps.append((both[0].gap, both[1].gap))
        cells = (f"{o.objective or '-':>14}{o.bound:>14}{o.gap:>8.2%}{o.seconds:>6.1f}" for o in both)
        print(f"{name:32}{''.join(cells)}", flush=True)
    ours, plain = fmean(ours for ours, _ in gaps), fmean(plain for _, plain in gaps)
    worse = sum(ours > plain for ours, plain in gaps)
    print(f"mean gap: cpsat {ours:.2%}, plain {plain:.2%}, ratio {ours / plain if plain else math.nan:.3f}")
    print(f"{len(gaps)} instances, cpsat has the larger gap on {worse}")


if __name__ == "__main__":
    main()

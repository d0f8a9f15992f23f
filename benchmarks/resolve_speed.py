"""One changed job among about 200: seconds of `resolve` against seconds of `solve` from scratch to the same gap.

Run it as ``python benchmarks/resolve_speed.py`` (or with instances as ``FAMILY:SEED:LOAD``). For each instance a plan
is found first; then a job is added, removed or made longer, or a link slower, and each changed instance is solved both
ways in turn in the same process. From scratch, `auto` stops once its gap is at most that of `resolve`, or at
``--limit`` seconds, which the table marks with ``>``. Last line: the geometric mean of the ratios.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace

from jigsaw_opt.documents import add_job, change_bandwidth, remove_job
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import resolve
from jigsaw_opt.solvers.solve import solve

DEFAULT = ("pod:0:800", "pod:1:900", "cluster:3:400")


def changes(instance: Instance, seed: int) -> Iterator[tuple[str, Instance]]:
    job = instance.jobs[(7 * seed + 3) % len(instance.jobs)]
    yield "one job more", add_job(instance, replace(job, name="new"))
    yield "one job less", remove_job(instance, job.name)
    longer = replace(job, iterations=job.iterations + 1)
    yield "a job longer", replace(instance, jobs=tuple(longer if j is job else j for j in instance.jobs))
    link = instance.cluster.links[seed % len(instance.cluster.links)]
    yield "a link slower", change_bandwidth(instance, link.name, link.bandwidth * 4 // 5)


def row(title: str, instance: Instance, plan: Plan, options: Options, limit: float) -> tuple[str, float]:
    started = time.monotonic()
    warm = resolve(instance, plan, options=options)
    seconds = time.monotonic() - started
    assert warm.gap is not None and warm.objective is not None
    started = time.monotonic()
    cold = solve(instance, "auto", replace(options, gap=warm.gap, time_limit=limit))
    scratch = time.monotonic() - started
    reached = cold.gap is not None and cold.gap <= warm.gap
    gap = "-" if cold.gap is None else f"{cold.gap:.2%}"
    found = f"{warm.objective:>12}{warm.gap:>8.2%}{seconds:>8.2f}{cold.objective or '-':>12}{gap:>8}"
    return f"{title:<15}{found}{'' if reached else '>':>3}{scratch:>7.1f}{scratch / seconds:>8.1f}", scratch / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instances", nargs="*", default=DEFAULT, metavar="FAMILY:SEED:LOAD")
    parser.add_argument("--seconds", type=float, default=30.0, help="for the old plan")
    parser.add_argument("--limit", type=float, default=60.0, help="for each solve from scratch")
    parser.add_argument("--workers", type=int, default=2, help="threads of both")
    asked = parser.parse_args()
    ratios = []
    for name in asked.instances:
        family, seed, load = name.split(":")
        instance = generate(family, int(seed), load=int(load))
        options = Options(threads=asked.workers)
        old = solve(instance, "auto", replace(options, time_limit=asked.seconds))
        assert old.plan is not None and old.gap is not None
        print(f"{instance.name}, {len(instance.jobs)} jobs: {old.objective}, gap {old.gap:.2%}, {old.seconds:.0f} s")
        print(f"{'':<15}{'resolve':>12}{'gap':>8}{'s':>8}{'scratch':>12}{'gap':>8}{'s':>10}{'ratio':>8}")
        for title, after in changes(instance, int(seed)):
            line, ratio = row(title, after, old.plan, options, asked.limit)
            print(line, flush=True)
            ratios.append(ratio)
    print(f"geometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.1f}")


if __name__ == "__main__":
    main()

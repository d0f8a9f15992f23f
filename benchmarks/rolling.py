"""Jobs come while time goes on: milliseconds of a solve in a session, and of `resolve` that keeps the whole history.

Run it as ``python benchmarks/rolling.py`` (or with instances as ``FAMILY:SEED:LOAD``). After a first plan, so many jobs
(``--steps``) come one after the other at equal distances. At each, a `Session` solves anew what is left, and `resolve`
the instance of all jobs so far with all that has started fixed. Rows are means over the first and the last ten steps
and sums over all; ``no plan`` counts steps at which `resolve` found none, as memory counts jobs that have ended.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jigsaw_opt.documents import add_job
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix, resolve
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.session import Session

DEFAULT = ("server:0:200", "rack:0:100", "pod:0:200")


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    return call(), 1000 * (time.perf_counter() - started)


def _rolled(session: Session, now: int, job: Job) -> Result:
    session.advance(now)
    session.add(job)
    return session.solve(Options(threads=1))


def roll(instance: Instance, steps: int) -> tuple[list[float], list[float], int]:
    """Milliseconds of both at each step, and how often `resolve` found no plan."""
    session, whole, missing = Session(instance), instance, 0
    plan = session.solve(Options(threads=1, work_limit=0.1)).plan
    assert plan is not None
    gap = plan.objective // (2 * len(instance.jobs) + 2)
    mine, theirs = [], []
    for step in range(steps):
        now = (step + 1) * gap
        job = replace(instance.data_parallel[step % len(instance.jobs)], name=f"late {step}", release_us=now)

        whole = add_job(whole, job)
        _, took = timed(partial(_rolled, session, now, job))
        mine.append(took)
        result, took = timed(partial(resolve, whole, plan, Fix(before_us=now), Options(threads=1)))
        theirs.append(took)
        missing += result.plan is None
        plan = result.plan or plan
    return mine, theirs, missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("instances", nargs="*", default=DEFAULT, metavar="FAMILY:SEED:LOAD")
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()
    print(f"{'':16}{'first 10':>18}{'last 10':>18}{'all':>18}{'ratio':>7}{'no plan':>9}")
    for name in asked.instances:
        family, seed, load = name.split(":")
        mine, theirs, missing = roll(generate(family, int(seed), load=int(load)), asked.steps)
        pairs = [(sum(a) / len(a), sum(b) / len(b)) for a, b in ((mine[:10], theirs[:10]), (mine[-10:], theirs[-10:]))]
        pairs.append((sum(mine), sum(theirs)))
        cells = "".join(f"{a:>9.0f}{b:>9.0f}" for a, b in pairs)
        print(f"{name:16}{cells}{sum(theirs) / sum(mine):>7.2f}{missing:>9}")


if __name__ == "__main__":
    main()

"""Phased plans of jobs with more and more iterations: gap, seconds and memory, beside plans that list all iterations.

``python benchmarks/phased.py rack pod --factors 1 10 1000 100000`` multiplies the iterations of every job by each
factor. An instance is solved in a process of its own. Up to ``--listed-to`` `auto` makes a plan that lists all
iterations in the same time. One table row an instance; the last rows are means by set and objective.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from common import print_table
from paired.cases import named
from paired.request import percent

from jigsaw_opt import Options, solve
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.result import relative_gap

HEADS = ("instance", "jobs", "objective", "factor", "phased", "time", "memory", "listed", "phased / listed")


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of one process."""

    objective: int | None
    bound: int
    seconds: float
    megabytes: float

    @property
    def gap(self) -> float | None:
        """Relative gap, or None without a plan."""
        return None if self.objective is None else relative_gap(self.objective, self.bound)


def longer(instance: Instance, factor: int) -> Instance:
    """The same jobs with so many times the iterations."""
    jobs = tuple(replace(job, iterations=job.iterations * factor) for job in instance.jobs)
    return replace(instance, jobs=jobs)


def run(source: str, number: int, factor: int, kind: str, seconds: float) -> Run:
    """Solve in a process of its own, so that its peak of memory is that of one solve."""
    command = [sys.executable, __file__, source, "--child", json.dumps([number, factor, kind, seconds])]
    return Run(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def child(source: str, number: int, factor: int, kind: str, seconds: float) -> None:
    """Solve one instance of a source and print what came out."""
    instance = longer([instance for _, instance in named(source)][number], factor)
    options = Options(time_limit=seconds, threads=1)
    started = time.monotonic()
    result = solve(instance, "phased" if kind == "phased" else "portfolio", options)
    spent = time.monotonic() - started
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({
        "objective": result.objective, "bound": result.bound, "seconds": spent, "megabytes": megabytes,
    }))  # fmt: skip


def rows(sources: Sequence[str], factors: Sequence[int], listed_to: int, seconds: float) -> Iterator[Sequence[object]]:
    """A row each instance and factor, then the means."""
    gaps = defaultdict(list)
    for source, factor in ((source, factor) for source in sources for factor in factors):
        for number, (_, instance) in enumerate(named(source)):
            if instance.horizon != "finite" or instance.task_graph_jobs:
                continue
            phased = run(source, number, factor, "phased", seconds)
            listed = run(source, number, factor, "listed", seconds) if factor <= listed_to else None
            if phased.gap is not None:
                gaps[source, factor, instance.objective].append(phased.gap)
            yield row(instance, factor, phased, listed)
    for (source, factor, objective), found in gaps.items():
        yield [f"mean of {source}", len(found), objective, factor, percent(mean(found)), "", "", "", ""]


def row(instance: Instance, factor: int, phased: Run, listed: Run | None) -> Sequence[object]:
    """One line of the table."""
    ratio = (
        "" if listed is None or not listed.objective or not phased.objective else phased.objective / listed.objective
    )
    return [
        *(instance.name, len(instance.jobs), instance.objective, factor, shown(phased.gap)),
        *(f"{phased.seconds:.1f} s", f"{phased.megabytes:.0f} MB"),
        *("" if listed is None else shown(listed.gap), f"{ratio:.3f}" if ratio else ""),
    ]


def shown(gap: float | None) -> str:
    """A gap in percent, or that there is no plan."""
    return "no plan" if gap is None else percent(gap)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="*", default=("rack", "pod"), metavar="SET | FAMILY:SEEDS")
    parser.add_argument("--factors", type=int, nargs="*", default=(1, 10, 1000, 100_000))
    parser.add_argument("--listed-to", type=int, default=10, metavar="FACTOR", help="the largest with a listed plan")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of each")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.sources[0], *json.loads(asked.child))
        return
    print_table(HEADS, rows(asked.sources, asked.factors, asked.listed_to, asked.seconds))


if __name__ == "__main__":
    main()

"""Makespan and period of the same jobs, found in the same time: a finite plan repeated is a cyclic one.

``python benchmarks/horizons.py rack crowded:1000-1023 --gpus 64 --time-limits 10`` solves each instance twice by
`auto`, on the finite horizon and on the cyclic one, all jobs released at 0. One table row an instance; the last line
counts the instances whose period is above the makespan.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paired.cases import named
from paired.request import ended, line, percent

from jigsaw_opt import Options, solve
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.result import Result

HEADS = ("instance", "GPUs", "jobs", "seed", "limit", "makespan", "period", "period / makespan", "gap", "gap of period")
DEFAULT = ("tiny", "server", "rack", "pod", "cluster", "crowded:1000-1039")


@dataclass(frozen=True, slots=True)
class Both:
    """An instance solved on both horizons."""

    makespan: Result
    period: Result

    @property
    def ratio(self) -> float | None:
        """Period over makespan; None where one of them has no plan."""
        if self.makespan.objective is None or self.period.objective is None:
            return None
        return self.period.objective / self.makespan.objective

    @property
    def contradicts(self) -> bool:
        """Whether the finite plan, repeated, would be the better cyclic plan."""
        return self.makespan.plan is not None and (self.ratio is None or self.ratio > 1)


def on_both(instance: Instance, options: Options) -> Both:
    """Solve the jobs of an instance on both horizons."""
    jobs = tuple(replace(job, release_us=0) for job in instance.jobs)
    return Both(
        solve(replace(instance, jobs=jobs, horizon="finite", objective="makespan"), "auto", options),
        solve(replace(instance, jobs=jobs, horizon="cyclic", objective="period"), "auto", options),
    )


def distinct(sources: Sequence[str], most_gpus: int) -> Iterator[Instance]:
    """The instances of all sources, each set of jobs on a cluster once."""
    seen = set()
    for source in sources:
        for _, instance in named(source):
            jobs = tuple(replace(job, release_us=0, weight=1) for job in instance.jobs)
            text = repr((instance.cluster, instance.models, jobs))
            if instance.cluster.gpu_count <= most_gpus and text not in seen:
                seen.add(text)
                yield instance


def shown(instance: Instance, options: Options, both: Both) -> Iterator[object]:
    """The cells of a row."""
    yield from (instance.name, instance.cluster.gpu_count, len(instance.jobs), options.seed)
    yield from (f"{options.time_limit:g} s", both.makespan.objective, both.period.objective)
    yield "-" if both.ratio is None else f"{both.ratio:.4f}"
    yield from ("-" if result.gap is None else percent(result.gap) for result in (both.makespan, both.period))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=DEFAULT, metavar="SET|INSTANCE|FAMILY:SEEDS")
    parser.add_argument("--gpus", type=int, default=256, help="leave out larger instances (default: 256)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--time-limits", type=float, nargs="+", default=[5.0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    print(line(HEADS), line("---" for _ in HEADS), sep="\n", flush=True)
    ratios, above, count = [], 0, 0
    for instance in distinct(asked.sources, asked.gpus):
        for limit in asked.time_limits:
            for seed in asked.seeds:
                options = Options(time_limit=limit, seed=seed, threads=asked.workers)
                both = on_both(instance, options)
                print(line(map(str, shown(instance, options, both))), flush=True)
                count, above = count + 1, above + both.contradicts
                ratios += [both.ratio] if both.ratio is not None else []
    mean = sum(ratios) / len(ratios) if ratios else float("nan")
    print(f"\n{count} pairs of solves; mean period / makespan {mean:.4f}; period above the makespan: {above}")


if __name__ == "__main__":
    sys.exit(ended(main))

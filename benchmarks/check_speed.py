"""CPU seconds to check greedy plans of growing size. Run ``python benchmarks/check_speed.py``."""

from __future__ import annotations

from dataclasses import replace

from common import timed

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import Instance, Plan, compile_instance
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.greedy import greedy_timetable

SIZES = (12_500, 25_000, 50_000, 100_000)
CASES = (("cluster", 0), ("pod", 2), ("pod", 5))


def grown(family: str, seed: int, blocks: int) -> Instance:
    """An instance of the family with about as many blocks as asked for, by more iterations of every job."""
    base = generate(family, seed)
    iterations = -(-blocks // sum(job.workers for job in base.jobs))
    return replace(base, jobs=tuple(replace(job, iterations=iterations) for job in base.jobs))


def greedy_plan(instance: Instance) -> Plan:
    """A correct plan, stated with no bound to speak of."""
    operations = compile_instance(instance)
    found = greedy_timetable(operations)
    if found is None:
        raise SystemExit(f"greedy found no placement for {instance.name}")
    value = objective_of(operations, found.jobs, found.period_us)
    return Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, found.period_us, found.jobs)


def main() -> None:
    print(f"{'instance':<26}{'horizon':>8}{'blocks':>9}{'transfers':>11}{'CPU s':>8}{'us/block':>10}{'broken':>8}")
    for family, seed in CASES:
        for size in SIZES:
            _row(grown(family, seed, size))


def _row(instance: Instance) -> None:
    plan, operations = greedy_plan(instance), compile_instance(instance)
    broken, seconds = timed(lambda: check(instance, plan))
    print(
        f"{instance.name:<26}{instance.horizon:>8}{operations.blocks:>9}{operations.transfers:>11}"
        f"{seconds:>8.2f}{seconds * 1e6 / operations.blocks:>10.1f}{len(broken):>8}"
    )


if __name__ == "__main__":
    main()

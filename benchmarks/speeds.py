"""How fast the program is on growing inputs: ``python benchmarks/speeds.py [start] [load] [check] [greedy] [tiny]``.

``start`` and ``load`` start Python and decode instances of many jobs; ``check`` checks greedy plans of many blocks;
``greedy`` compiles, bounds and plans clusters of about eight jobs a server; ``tiny`` proves each bundled instance by
both exact solvers, and ends with exit code 1 where two proven objectives or the stored one differ. Seconds are CPU
seconds, but wall-clock seconds of ``tiny``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from common import print_table, timed

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, encode_instance, instance_sha256
from jigsaw_opt.instances import best_known, generate, load, names
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem import Instance, Job, Model, Operations, Plan, Segment, Server, StaircaseDepth, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.depth import Depth, FreeDepth, FullDepth
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, refusal
from jigsaw_opt.solvers.result import Result, relative_gap
from jigsaw_opt.solvers.solve import solve

Row = Sequence[object]
STARTS = {"import jigsaw_opt": ("-c", "import jigsaw_opt"), "jigsaw --help": ("-m", "jigsaw_opt", "--help")}
JOBS = (8_000, 16_000, 32_500, 65_000)
BLOCKS = (12_500, 25_000, 50_000, 100_000)
GROWN = (("cluster", 0), ("pod", 2), ("pod", 5))
GPUS_PER_SERVER = 8
WIDTHS = (1, 1, 2, 2, 2, 4, 4, 8, 16)
RULES: tuple[Depth, ...] = (FullDepth(), StaircaseDepth(), FreeDepth())


def starts(asked: argparse.Namespace) -> Iterator[Row]:
    """Least of ten runs, beyond that of an idle Python: a loaded machine only ever adds."""

    def least(arguments: Sequence[str]) -> float:
        run = partial(subprocess.run, [sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        return min(timed(run)[1] for _ in range(10))

    idle = least(("-c", "pass"))
    for name, arguments in STARTS.items():
        yield name, f"{least(arguments) - idle:.3f}"


def loads(asked: argparse.Namespace) -> Iterator[Row]:
    base = generate("cluster", 0)
    for size in JOBS:
        jobs = tuple(replace(base.jobs[k % len(base.jobs)], name=f"job{k}") for k in range(size))
        document = encode_instance(replace(base, jobs=jobs))
        least = min(timed(partial(decode_instance, document))[1] for _ in range(5))
        yield size, f"{len(document) / 1e6:.1f}", f"{least:.3f}"


def checks(asked: argparse.Namespace) -> Iterator[Row]:
    """Instances grow by more iterations of every job."""
    for family, seed in GROWN:
        base = generate(family, seed)
        for blocks in BLOCKS:
            iterations = -(-blocks // sum(job.workers for job in base.jobs))
            instance = replace(base, jobs=tuple(replace(job, iterations=iterations) for job in base.jobs))
            operations = compile_instance(instance)
            found = greedy_timetable(operations)
            assert found is not None, instance.name
            value, digest = objective_of(operations, found.jobs, found.period_us), instance_sha256(instance)
            plan = Plan.of_jobs(instance.name, digest, "feasible", value, 0, found.period_us, found.jobs)
            broken, seconds = timed(partial(check, instance, plan))
            yield (
                instance.name,
                instance.horizon,
                operations.blocks,
                operations.transfers,
                f"{seconds:.2f}",
                len(broken),
            )


def plans(asked: argparse.Namespace) -> Iterator[Row]:
    for power in reversed(range(asked.sizes)):
        made = clusters(asked.servers >> power, asked.topology, asked.horizon, asked.seed)
        (operations, bound, found), seconds = timed(partial(_planned, made, asked.seed))
        gap = "no placement"
        if found is not None:
            gap = f"{relative_gap(objective_of(operations, found.jobs, found.period_us), bound):.1%}"
        yield asked.servers >> power, len(made.jobs), operations.blocks, operations.transfers, f"{seconds:.2f}", gap


def _planned(instance: Instance, seed: int) -> tuple[Operations, int, Timetable | None]:
    operations = compile_instance(instance)
    return operations, lower_bound(operations).value, greedy_timetable(operations, seed)


def clusters(servers: int, topology: str, horizon: str, seed: int) -> Instance:
    """About eight jobs a server, which ask for four workers on each of its GPUs."""
    draw = random.Random(seed)
    machines = [Server(f"s{k}", "gpu", GPUS_PER_SERVER, 80 * 10**9, 300 * 10**9, 3) for k in range(servers)]
    models = {f"net{k}": _model(draw) for k in range(8)}
    jobs: list[Job] = []
    workers = 4 * GPUS_PER_SERVER * servers
    while workers > 0:
        width = min(draw.choice(WIDTHS), workers)
        jobs.append(Job(f"job{len(jobs)}", draw.choice(list(models)), width, 10, depth=draw.choice(RULES)))
        workers -= width
    cluster, name = TOPOLOGIES[topology](machines, 25 * 10**9, 5), f"{topology}-{servers}"
    if horizon == "cyclic":
        return Instance(name, cluster, models, tuple(jobs), "cyclic", "period")
    return Instance(name, cluster, models, tuple(jobs), "finite", "makespan")


def _model(draw: random.Random) -> Model:
    segments = [
        Segment(
            f"part{k}",
            {"gpu": draw.randint(1_000, 5_000)},
            {"gpu": draw.randint(2_000, 10_000)},
            draw.randint(1, 40) * 10**6,
            draw.randint(1, 400) * 10**6,
        )
        for k in range(draw.randint(4, 8))
    ]
    return Model(tuple(segments))


def proofs(asked: argparse.Namespace) -> Iterator[Row]:
    options = Options(time_limit=asked.time_limit, threads=asked.workers)
    for name in names("tiny"):
        instance, stored = load(name), best_known(name)
        able = [solver for solver in ("cpsat", "ilp") if refusal(find(solver), instance) is None]
        results = {solver: solve(instance, solver, options) for solver in able}
        proven = {result.objective for result in results.values() if result.status == "optimal"}
        proven |= {stored.objective} if stored is not None and stored.optimal else set()
        asked.wrong += len(proven) > 1
        yield name, *(_shown(results.get(solver)) for solver in ("cpsat", "ilp")), *sorted(proven, key=str)


def _shown(result: Result | None) -> str:
    return "-" if result is None else f"{result.objective} {result.status} in {result.seconds:.2f} s"


TABLES: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Row]], Sequence[str]]] = {
    "start": (starts, ("start", "CPU s more than an idle Python")),
    "load": (loads, ("jobs", "MB", "CPU s")),
    "check": (checks, ("instance", "horizon", "blocks", "transfers", "CPU s", "broken rules")),
    "greedy": (plans, ("servers", "jobs", "blocks", "transfers", "CPU s", "gap")),
    "tiny": (proofs, ("instance", "cpsat", "ilp", "proven")),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)} (default: all)")
    parser.add_argument("--servers", type=int, default=128, help="of the largest cluster; the others are halves")
    parser.add_argument("--sizes", type=int, default=4, help="how many clusters")
    parser.add_argument("--topology", choices=("star", "tree"), default="star")
    parser.add_argument("--horizon", choices=("finite", "cyclic"), default="finite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a proof")
    parser.add_argument("--workers", type=int, default=2, help="threads of a proof")
    asked = parser.parse_args(namespace=argparse.Namespace(wrong=0))
    if unknown := [name for name in asked.tables if name not in TABLES]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    for name in asked.tables or TABLES:
        rows, heads = TABLES[name]
        print_table(heads, rows(asked))
        print()
    return 1 if asked.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

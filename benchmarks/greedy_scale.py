"""How the greedy heuristic grows: one table row a size, from a cut instance to a timetable with its gap.

Run it as ``python benchmarks/greedy_scale.py``; CPU seconds are for cutting, bound and heuristic together.
"""

from __future__ import annotations

import argparse
import random
import time

from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem import Instance, Job, Model, Segment, Server, StaircaseDepth, compile_instance
from jigsaw_opt.problem.job import Depth, FreeDepth, FullDepth
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.result import relative_gap

GPUS_PER_SERVER = 8
WIDTHS = (1, 1, 2, 2, 2, 4, 4, 8, 16)
RULES: tuple[Depth, ...] = (FullDepth(), StaircaseDepth(), FreeDepth())


def instance(servers: int, topology: str, horizon: str, seed: int) -> Instance:
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
    cluster = TOPOLOGIES[topology](machines, 25 * 10**9, 5)
    cyclic = horizon == "cyclic"
    return Instance(
        f"{topology}-{servers}",
        cluster,
        models,
        tuple(jobs),
        "cyclic" if cyclic else "finite",
        "period" if cyclic else "makespan",
    )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=128, help="servers of the largest size; the others are halves")
    parser.add_argument("--sizes", type=int, default=4)
    parser.add_argument("--topology", choices=("star", "tree"), default="star")
    parser.add_argument("--horizon", choices=("finite", "cyclic"), default="finite")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    titles = ("servers", "jobs", "workers", "blocks", "transfers", "CPU s", "us/block", "gap")
    print("".join(f"{title:>10}" for title in titles))
    for power in reversed(range(asked.sizes)):
        made = instance(asked.servers >> power, asked.topology, asked.horizon, asked.seed)
        started = time.process_time()
        operations = compile_instance(made)
        bound = lower_bound(operations)
        timetable = greedy_timetable(operations, asked.seed)
        seconds = time.process_time() - started
        if timetable is None:
            print(f"{asked.servers >> power:>10}  no placement found")
            continue
        gap = relative_gap(objective_of(operations, timetable.jobs, timetable.period_us), bound.value)
        workers = sum(job.slots for job in operations.jobs)
        print(
            f"{asked.servers >> power:>10}{len(operations.jobs):>10}{workers:>10}{operations.blocks:>10}"
            f"{operations.transfers:>10}"
            f"{seconds:>10.2f}{seconds * 1e6 / operations.blocks:>10.1f}{gap:>10.1%}"
        )


if __name__ == "__main__":
    main()

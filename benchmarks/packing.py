"""Packing of large queues: objective, certified gap and CPU time, cold and warm.

Run as ``python benchmarks/packing.py``. The models are the bundled estimated profiles. 50 classes are 10 models times
5 widths; their numbers of jobs follow from shares of the widths with a factor drawn for each class. A job's weight
is its number of workers (`gpus`), that times a drawn factor (`drawn`), or 1 (`one`). `warm` packs again after a tenth
of the jobs of every class was replaced by a drawn number, with what the packings before have left. `fluid` is
the gap to the fluid bound, which holds against any sets of jobs on the same GPUs.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import replace
from functools import partial

from common import timed

from jigsaw_opt.instances.profiles import profile
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.job import StaircaseDepth
from jigsaw_opt.problem.packing import PackingProblem, QueuedJobs, ServerType
from jigsaw_opt.solvers.allocation.packing import Memory, pack, rate_bound

_NETWORKS = {"resnet50": (64, 32), "vgg16": (32, 16), "bert_large": (8, 4), "gpt2_small": (4, 2), "gpt2_medium": (2, 1)}
_WIDTHS = {1: 0.6, 2: 0.12, 4: 0.12, 8: 0.12, 16: 0.04}
_GBIT = 125_000_000


def problem(gpus: int, jobs: int, weights: str, seed: int) -> PackingProblem:
    """Half V100 and half A100 servers of 8 GPUs, and a queue of 50 classes."""
    draw = random.Random(seed)
    models = {
        f"{name}-{batch}": profile(name, batch, ("v100", "a100"), 8)
        for name, batches in _NETWORKS.items()
        for batch in batches
    }
    shares = {(m, w): share * draw.uniform(0.5, 1.5) for m in models for w, share in _WIDTHS.items()}
    total = sum(shares.values())
    classes = tuple(
        QueuedJobs(f"{m}/{w}", m, w, round(jobs * share / total), _weight(weights, w, draw), StaircaseDepth())
        for (m, w), share in shares.items()
    )
    servers = gpus // 8
    types = (
        ServerType(Server("v", "v100", 8, 32_000_000_000, 130_000_000_000, 5), servers // 2, 100 * _GBIT, 10),
        ServerType(Server("a", "a100", 8, 80_000_000_000, 300_000_000_000, 5), servers - servers // 2, 200 * _GBIT, 10),
    )
    return PackingProblem(types, models, classes)


def _weight(weights: str, workers: int, draw: random.Random) -> float:
    return {"gpus": float(workers), "drawn": workers * draw.uniform(0.2, 1.0), "one": 1.0}[weights]


def changed(old: PackingProblem, draw: random.Random) -> PackingProblem:
    """The problem a round later."""
    classes = (replace(c, count=c.count - c.count // 10 + draw.randint(0, c.count // 5)) for c in old.classes)
    return replace(old, classes=tuple(classes))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="warm rounds")
    rounds = parser.parse_args().rounds
    print("GPUs | jobs | weights | gap cold | fluid | timetables | CPU s cold | gap warm, worst | CPU s warm | p95")
    print("---:|---:|:---|---:|---:|---:|---:|---:|---:|---:")
    for gpus, jobs in ((10_000, 20_000), (2_048, 2_000)):
        for weights in ("gpus", "drawn", "one"):
            row(gpus, jobs, weights, rounds)


def row(gpus: int, jobs: int, weights: str, rounds: int) -> None:
    """One row of the table."""
    memory, asked, draw = Memory(), problem(gpus, jobs, weights, seed=1), random.Random(2)
    cold, seconds = timed(lambda: pack(asked, memory))
    timetables = memory.timetables.found
    fluid = 1.0 - cold.objective / rate_bound(asked)
    times, gaps = [], []
    for _ in range(rounds):
        asked = changed(asked, draw)
        warm, spent = timed(partial(pack, asked, memory))
        gaps.append(warm.gap)
        times.append(spent)
    last = statistics.quantiles(times, n=20)[-1]
    later = f"{max(gaps):.2%} | {statistics.median(times):.3f} | {last:.3f}"
    print(
        f"{gpus} | {jobs} | {weights} | {cold.gap:.2%} | {fluid:.2%} | {timetables} | {seconds:.2f} | {later}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""The published comparisons of SJF-BCO (MobiHoc 2022, figures 4 to 7), for their direction.

Run it as ``python benchmarks/sjf_bco_figures.py 4 5 6 7``, with the figures as arguments; ``ratio`` compares the
algorithms with the best of all schedules on tiny batches. Figures are means over seeds, in slots.

Servers, numbers and sizes of jobs, iterations, the range of times and the horizon are those of the paper. It does not
publish the rest, which is chosen here: the time of an iteration without its exchange is drawn evenly from 0.01 to
0.05 slots; on eight servers, of which one has eight jobs on several, exchange and overhead take about 12 % and 3 % of
it; alpha 1/4, xi 1/2.
Baselines take the jobs in the order of a random queue, or smallest first as SJF-BCO does; both are shown.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from statistics import mean

from jigsaw_opt.formulations.sjf_bco import Batch, BatchNetwork, RingJob, completion, overestimate
from jigsaw_opt.problem.contention import Degraded
from jigsaw_opt.solvers.allocation.sjf_bco import (
    BatchOutcome,
    Variant,
    all_schedules,
    best_schedule,
    first_fit,
    least_load,
    random_fit,
    sjf_bco,
    smallest_first,
)

SIZES = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
SLOT_US = 60_000_000
NETWORK = BatchNetwork(10**12, 10**9, 10**13, Degraded(Fraction(1, 4), Fraction(1, 2)), Fraction(6000))
SLOWDOWN = NETWORK.contention.slowdown(8)
Algorithm = Callable[[Batch], BatchOutcome | None]


def job(draw: random.Random, name: str, workers: int) -> RingJob:
    """A job whose exchange takes 12 % of its computation where eight jobs meet on a server."""
    compute = draw.randint(SLOT_US // 100, SLOT_US // 20)
    moved = Fraction(12, 100) * compute * NETWORK.outside / (2 * SLOWDOWN * 10**6)
    gradient = int(moved * workers / (workers - 1)) if workers > 1 else 0
    return RingJob(name, workers, draw.randint(1000, 6000), gradient, 0, 0, compute)


def published_batch(seed: int, servers: int, horizon: int) -> Batch:
    draw = random.Random(seed)
    gpus = tuple(draw.choice((4, 8, 16, 32)) for _ in range(20))[:servers]
    sizes = [size for size, count in SIZES.items() for _ in range(count)]
    draw.shuffle(sizes)
    jobs = tuple(job(draw, f"j{k}", size) for k, size in enumerate(sizes))
    return Batch(gpus, jobs, NETWORK, SLOT_US, horizon)


def queue_order(batch: Batch) -> list[int]:
    """The jobs as they stand: sizes were shuffled."""
    return list(range(len(batch.jobs)))


ALGORITHMS: dict[str, Algorithm] = {
    "sjf-bco": sjf_bco,
    "sjf-bco, literal": lambda batch: sjf_bco(batch, "literal"),
    "LS, queue": lambda batch: least_load(batch, queue_order(batch)),
    "FF, queue": lambda batch: first_fit(batch, queue_order(batch)),
    "RAND, queue": lambda batch: random_fit(batch, queue_order(batch)),
    "LS, smallest first": lambda batch: least_load(batch, smallest_first(batch)),
    "FF, smallest first": lambda batch: first_fit(batch, smallest_first(batch)),
    "RAND, smallest first": lambda batch: random_fit(batch, smallest_first(batch)),
}


def figures(found: Sequence[BatchOutcome | None]) -> str:
    """Mean makespan and mean completion, and how many seeds have no schedule within the horizon."""
    made = [outcome for outcome in found if outcome is not None]
    failed = f"  ({len(found) - len(made)} without a schedule)" if len(made) < len(found) else ""
    if not made:
        return f"{'-':>10}{'-':>12}{failed}"
    return f"{mean(each.makespan for each in made):>10.1f}{mean(mean(each.ends) for each in made):>12.1f}{failed}"


def show(label: str, algorithm: Algorithm, batches: Sequence[Batch]) -> None:
    print(f"{label:<32}{figures([algorithm(batch) for batch in batches])}", flush=True)


def figure_4(seeds: range) -> None:
    batches = [published_batch(seed, 20, 1200) for seed in seeds]
    for name, algorithm in ALGORITHMS.items():
        show(name, algorithm, batches)


def figure_5(seeds: range) -> None:
    batches = [published_batch(seed, 20, 1200) for seed in seeds]
    for kappa in SIZES:
        show(f"kappa {kappa}", partial(sjf_bco, thresholds=[kappa]), batches)


def figure_6(seeds: range) -> None:
    for servers in (10, 15, 20):
        batches = [published_batch(seed, servers, 1500) for seed in seeds]
        for name in ("sjf-bco", "LS, queue", "FF, queue", "RAND, queue"):
            show(f"{servers} servers, {name}", ALGORITHMS[name], batches)


def figure_7(seeds: range) -> None:
    batches = [published_batch(seed, 20, 1200) for seed in seeds]
    variants: tuple[Variant, ...] = ("intent", "literal")
    for variant in variants:
        for spread in (1, 2, 4, 8):
            at_spread = partial(sjf_bco, variant=variant, thresholds=[1], spread=Fraction(spread))
            show(f"kappa 1, lambda {spread}, {variant}", at_spread, batches)


def tiny_batch(seed: int) -> Batch:
    """Four jobs on five GPUs whose exchanges take as long as their computation on two servers, alone."""
    draw = random.Random(seed)
    network = replace(NETWORK, contention=Degraded(Fraction(1, 2)), overhead_us=Fraction(0))
    jobs = []
    for k in range(4):
        workers = draw.choice((1, 2, 2, 3))
        gradient = 15 * 10**9 * workers // max(1, 2 * (workers - 1)) if workers > 1 else 0
        jobs.append(RingJob(f"j{k}", workers, draw.randint(4, 10), gradient, 0, 0, 15_000_000))
    return Batch((2, 3), tuple(jobs), network, SLOT_US, 60)


def ratios(seeds: range) -> None:
    """The makespan of every algorithm over the least of all schedules."""
    found: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    listed, proved = [], []
    for seed in seeds:
        batch = tiny_batch(seed)
        outcomes = {name: algorithm(batch) for name, algorithm in ALGORITHMS.items()}
        limit = min(outcome.makespan for outcome in outcomes.values() if outcome is not None)
        listed.append(sum(1 for _ in all_schedules(batch, limit)))
        proved.append(float(max(job.workers for job in batch.jobs) * overestimate(batch)))
        best = best_schedule(batch, limit)
        ends = None if best is None else completion(batch, best)
        assert ends is not None
        for name, outcome in outcomes.items():
            found[name] += [] if outcome is None else [outcome.makespan / max(ends)]
    print(f"{len(listed)} batches, {mean(listed):.0f} schedules listed of each (at most {max(listed)})")
    print(f"the theorem allows SJF-BCO a ratio of {mean(proved):.1f} or more on average, n_g u")
    print(f"{'':<32}{'mean':>10}{'largest':>12}{'optimal':>10}")
    for name, values in found.items():
        print(f"{name:<32}{mean(values):>10.3f}{max(values):>12.3f}{sum(value == 1 for value in values):>10}")


FIGURES: dict[str, Callable[[range], None]] = {
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "ratio": ratios,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", default=list(FIGURES), metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds; batches of ratio are 20 times as many")
    asked = parser.parse_args()
    for name in asked.figures:
        titles = "" if name == "ratio" else f"{'':<32}{'makespan':>10}{'mean end':>12}\n"
        print(f"{'Figure ' + name if titles else 'Ratio to the optimum'}\n{titles}", end="")
        FIGURES[name](range(asked.seeds if titles else 20 * asked.seeds))


if __name__ == "__main__":
    main()

"""Partial levels, compression and local steps, alone and together, on a link-bound and on a compute-bound cluster.

Run as ``python benchmarks/levers.py``. Two jobs of an estimated network have one worker each on every one of 4 servers
with one GPU, all linked to one switch. Links are so fast that the whole gradients of a job take twice, or a tenth, of
the time of a block at full depth. Each combination is planned for the least period, with a work limit and one thread.

Goodput is progress by time. What levels are worth comes from a noise scale that is assumed. What a step with
compressed gradients or without an exchange is worth is measured: the number of steps at full depth that reach the same
held-out loss of the digits, each at the best of some rates. Both factors are multiplied. With compression, `every` 4
stands for gradients of 4 batches that add up; without it for local steps, as hooks do not go together with these.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import fmean

from common import print_table, with_noise
from spb.subjects import SUBJECTS
from spb.training import Method, Run, Setting, train
from spb_progress import LENGTHS, length_of

from jigsaw_opt import FreeDepth, InstanceBuilder, JobExchange, StaircaseDepth, solve, solve_per_progress
from jigsaw_opt.instances.profiles import profile
from jigsaw_opt.problem import FullDepth, Instance
from jigsaw_opt.problem.efficiency import progress_of
from jigsaw_opt.problem.rules.part import CheckedPart

WORKERS, JOBS, SEGMENTS, MILLION = 4, 2, 4, 1_000_000
CLUSTERS = {"links": 2.0, "GPUs": 0.1}
"""By what is scarce, the time of the whole gradients of a job over that of a block."""
LEVELS: dict[str, CheckedPart] = {
    "full": FullDepth(),
    "staircase": StaircaseDepth(),
    "two levels": FreeDepth(min_contributors=2, mean_depth="5/8"),
}
HOOKS = {"": None, "8 bits": "65/256", "largest 1/100": f"{WORKERS}/100"}
"""Bytes beside those of whole gradients: 4 a factor of 256 numbers; values and places, from all workers to all."""

SHARES = (0.15, 0.2, 0.25, *LENGTHS)
"""Lengths of runs at full depth, by that of the others."""


def measured(iterations: int, seeds: int, rates: Iterable[float]) -> dict[tuple[str, int], float]:
    """Return the progress of a step by hook and `every`."""
    subject = SUBJECTS["digits-mlp"]

    def best(method: Method, count: int, batches: int = 1) -> float:
        batch = subject.batch * batches
        runs = [[Run(WORKERS, s, Setting(), method, rate, count, batch) for s in range(seeds)] for rate in rates]
        losses = [fmean(train(subject, run)["points"][-1][2] for run in own) for own in runs]
        return min(loss for loss in losses if loss == loss)

    full = Method("full")
    curve = [(share, best(full, round(share * iterations))) for share in SHARES]
    found = {("", 1): 1.0, ("", 4): length_of(best(replace(full, average_every=4), iterations), curve)}
    for hook in filter(None, HOOKS):
        for every in (1, 4):
            found[hook, every] = length_of(best(replace(full, hook=hook), iterations // every, every), curve)
    return found


def instance(scarce: str, levels: str, hook: str, every: int, noise: float) -> Instance:
    """Return the jobs with one iteration each, repeated for ever."""
    model = profile("resnet50", 64, ["v100"], SEGMENTS)
    block_us = sum(part.forward_us["v100"] + part.backward_us["v100"] for part in model.segments)
    size = sum(part.parameter_bytes for part in model.segments)
    ring_bytes = 2 * (WORKERS - 1) * size / WORKERS
    builder = InstanceBuilder(f"{scarce} are scarce", horizon="cyclic")
    builder.add_switch("switch")
    for k in range(WORKERS):
        builder.add_server(f"s{k}", gpu_type="v100", gpus=1, gpu_memory=32 * 10**9, fabric_bandwidth=10**11)
        bandwidth = round(ring_bytes * MILLION / (CLUSTERS[scarce] * block_us))
        builder.add_link(f"l{k}", (f"s{k}", "switch"), bandwidth=bandwidth)
    builder.add_models({"net": with_noise(model, noise)})
    exchange = None if (hook, every) == ("", 1) else JobExchange(every if every > 1 else None, HOOKS[hook])
    for k in range(JOBS):
        builder.add_job(f"j{k}", model="net", workers=WORKERS, iterations=1, depth=LEVELS[levels], exchange=exchange)
    return builder.build()


def rows(given: argparse.Namespace, worth: dict[tuple[str, int], float]) -> Iterator[tuple[object, ...]]:
    """Yield a row a combination."""
    for scarce in given.scarce:
        base = 0.0
        for levels in LEVELS:
            for hook, every in worth:
                shown = scarce, levels, hook or "whole", every
                if every > 1 and levels != "full":
                    yield *shown, *["not allowed"] * 5
                    continue
                jobs = instance(scarce, levels, hook, every, given.noise)
                result = solve(jobs, work_limit=given.work, threads=1)
                assert result.plan is not None and result.plan.period_us
                made = fmean(progress_of(jobs, result.plan).values()) / every
                goodput = JOBS * every * made * worth[hook, every] * 1000 / result.plan.period_us
                base = base or goodput
                ms = [f"{us / 1000 / every:.1f}" for us in (result.plan.period_us, result.bound or 0)]
                yield *shown, *ms, f"{made:.2f}", f"{worth[hook, every]:.2f}", f"{goodput / base:.2f}"


def chosen(given: argparse.Namespace, worth: dict[tuple[str, int], float]) -> Iterator[tuple[object, ...]]:
    """Yield a row a job: what `solve_per_progress` chooses for each cluster of all levels and exchanges."""
    offered = [
        JobExchange(every if every > 1 else None, HOOKS[hook], min(MILLION, round(MILLION * share)))
        for (hook, every), share in worth.items()
        if (hook, every) != ("", 1)
    ]
    for scarce in given.scarce:
        jobs = instance(scarce, "full", "", 1, given.noise)
        found = solve_per_progress(jobs, work_limit=20 * given.work, threads=1, exchanges=offered)
        assert found.ratio is not None and found.full_ratio is not None and found.instance is not None
        for job in found.instance.data_parallel:
            taken = job.exchange or JobExchange()
            ms = [f"{float(us) / 1000:.1f}" for us in (found.ratio, found.bound)]
            shown = job.name, taken.bytes or 1, taken.every or 1, *ms, f"{float(job.step_progress):.2f}"
            yield scarce, *shown, f"{float(found.full_ratio / found.ratio):.2f}"


def main(given: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scarce", nargs="+", choices=CLUSTERS, default=list(CLUSTERS))
    parser.add_argument("--noise", type=float, default=4.0, help="assumed noise scale of all buckets")
    parser.add_argument("--work", type=float, default=1.0, help="work limit of each plan")
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rates", type=float, nargs="+", default=(0.1, 0.2, 0.4))
    asked = parser.parse_args(None if given is None else list(given))
    worth = measured(asked.iterations, asked.seeds, asked.rates)
    heads = ("scarce", "levels", "gradients", "every", "ms a step", "bound", "levels' progress", "step's", "goodput")
    print_table(heads, rows(asked, worth))
    heads = ("scarce", "job", "bytes", "every", "ms for a step's progress", "bound", "iteration's", "goodput")
    print_table(heads, chosen(asked, worth))


if __name__ == "__main__":
    main()

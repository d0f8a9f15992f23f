"""Background jobs in the holes of pipelines and bursts: ``python benchmarks/fills.py [--seconds 20] [--only vgg]``.

Costs of pipelines are those of the zero-bubble heuristic, one small and two of measured models, and bursts come from
DeepPool's profiles; both are read from the measured data (``JIGSAW_SHARED``). Schedules are 1F1B with the order of each
GPU kept, or free. The background has a job of one GPU for each GPU, in pieces, or a staircase
job of two workers for each two GPUs, whose transfers take no time. Each row is one call of `fill`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path

from common import print_table, shared

from jigsaw_opt.documents import save_instance
from jigsaw_opt.documents.readers.deeppool import read_deeppool_runs
from jigsaw_opt.planning.burst import (
    BurstSetting,
    burst_instance,
    exact_plan,
    profiled_costs,
    widest_plan,
)
from jigsaw_opt.planning.fill import FillResult, fill
from jigsaw_opt.planning.pipeline.orders import ORDERS, PipelineLayout
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem, pipeline_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job, StaircaseDepth
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.views.image import timeline_image
from jigsaw_opt.views.lanes import picture

HEADS = (
    *("foreground", "GPUs", "background", "slow-down allowed", "taken", "period us"),
    *("iterations a second", "bound", "gap", "holes filled", "throughput"),
)
SLOWDOWNS = "1.0", "1.05", "1.1", "1.2"
KINDS = "pieces", "SPB"
PIPELINES = {(4, 8, 6): (1000, 3000), (8, 24, 18522): (1, 10_000), (8, 24, 29718): (1, 10_000)}
"""Stages, micro-batches and forward time of the costs; their unit, and pieces beside them, in microseconds."""


@dataclass(frozen=True)
class Foreground:
    """A foreground job, and what background jobs do for it to be compared with.

    Parameters
    ----------
    name
        In the table.
    instance
        It alone.
    piece_us
        Of a background job of one GPU.
    batch, single_rate, parallel_rate
        Samples of an iteration; samples a second of the same model on one GPU, and data-parallel on all of them. 0
        where this is not known.
    """

    name: str
    instance: Instance
    piece_us: int
    batch: int = 0
    single_rate: float = 0.0
    parallel_rate: float = 0.0

    def throughput(self, found: FillResult) -> str:
        """Samples a second of foreground and background over those of data parallelism with a single task."""
        if not self.batch:
            return "-"
        own = self.batch * 1e6 / found.plan.objective
        return f"{(own + found.rate * self.piece_us / 1e6 * self.single_rate) / self.parallel_rate:.2f}"


def pipelines() -> Iterator[Foreground]:
    """Pipelines in 1F1B, and with their weights' gradients apart and the schedule free."""
    results = json.loads(shared("pipeline/reference_results.json").read_text(encoding="utf-8"))["zero_bubble"]
    for (stages, micro_batches, forward), (unit_us, piece_us) in PIPELINES.items():
        same = (
            result for result in results if (result["p"], result["m"], result["f"]) == (stages, micro_batches, forward)
        )
        entry = min(same, key=lambda each: each["max_mem"])
        f, b, w, sent = (tuple([unit_us * entry[key]] * stages) for key in ("f", "b", "w", "comm"))
        held, weights = (entry["mem_f"],) * stages, (-entry["mem_w"],) * stages
        whole = PipelineCosts(f, tuple(map(sum, zip(b, w, strict=True))), (), sent[1:], activation_bytes=held)
        apart = PipelineCosts(f, b, w, sent[1:], activation_bytes=held, weight_bytes=weights)
        for name, costs in (("1F1B", whole), ("free", apart)):
            layout = PipelineLayout(tuple(range(stages)), micro_batches, costs is apart)
            instance = pipeline_instance(PipelineProblem(costs, layout, round(entry["max_mem"])), name, "cyclic")
            title = f"{name} {stages}x{micro_batches}" + (f", {forward} us" if unit_us == 1 else "")
            yield Foreground(title, in_order(instance, layout) if costs is whole else instance, piece_us)


def in_order(instance: Instance, layout: PipelineLayout) -> Instance:
    """The instance of a pipeline with the passes of each GPU in the order of 1F1B."""
    job = instance.jobs[0]
    assert isinstance(job, TaskGraphJob)
    rows = [[f"{each.kind}{each.micro_batch}.{each.stage}" for each in row] for row in ORDERS["1f1b"](layout)]
    known = set(job.shape.edges)
    more = [Edge(one, other) for row in rows for one, other in pairwise(row)]
    edges = (*job.shape.edges, *(edge for edge in more if edge not in known))
    return replace(instance, jobs=(replace(job, shape=replace(job.shape, edges=edges)),))


def bursts(gpus: int, background_batch: int | None = None) -> Iterator[Foreground]:
    """Bursts of VGG and WideResNet at 266 000 bytes a microsecond, layers amplified at most 2 times.

    On more GPUs than samples there are several bursts of as many GPUs as samples, each on a server of its own.
    """
    for model, batch in (("vgg", 64), ("wrn", 32)):
        together = min(gpus, batch)
        yield several(burst(model, batch, together, background_batch), gpus // together)


def burst(model: str, batch: int, gpus: int, background_batch: int | None) -> Foreground:
    """A burst on all GPUs of a server; without a batch of their own, background jobs have that of data parallelism."""
    runs = read_deeppool_runs(shared("pipeline/deeppool", f"A100_{model}.prof").read_bytes())
    costs = profiled_costs(runs, BurstSetting(gpus, batch, 266_000))
    own = background_batch or batch // gpus
    single = widest_plan(profiled_costs(runs, BurstSetting(1, own, 266_000)))
    return Foreground(
        f"{model} {batch}",
        burst_instance(exact_plan(costs, 2.0), model, "cyclic"),
        500,
        batch,
        own * 1e6 / single.iteration_us,
        batch * 1e6 / widest_plan(costs).iteration_us,
    )


def several(foreground: Foreground, count: int) -> Foreground:
    """So many of a foreground, each on servers of its own."""
    if count == 1:
        return foreground
    one, numbers = foreground.instance, range(count)
    servers = tuple(replace(server, name=f"{server.name}{k}") for k in numbers for server in one.cluster.servers)
    jobs = tuple(replace(job, name=f"{job.name}{k}") for k in numbers for job in one.jobs)
    return replace(
        foreground,
        name=f"{count} x {foreground.name}",
        instance=replace(one, cluster=replace(one.cluster, servers=servers), jobs=jobs),
        batch=count * foreground.batch,
        parallel_rate=count * foreground.parallel_rate,
    )


def with_background(foreground: Foreground, kind: str) -> Instance:
    """The foreground with jobs of one GPU in pieces, or staircase jobs of two workers."""
    instance, us = foreground.instance, foreground.piece_us
    gpus = instance.cluster.gpu_count
    if kind == "pieces":
        shape = TaskGraph((Slot("gpu"),), (TaskGraphBlock("piece", ("gpu",), {"gpu": us}),))
        pieces = tuple(TaskGraphJob(f"one{gpu}", shape, 1) for gpu in range(gpus))
        return replace(instance, jobs=(*instance.jobs, *pieces))
    part = {"gpu": us // 3}
    model = Model(tuple(Segment(name, part, {"gpu": us}, 0, 0) for name in ("low", "high")))
    pairs = tuple(Job(f"two{pair}", "m", 2, 1, depth=StaircaseDepth()) for pair in range(gpus // 2))
    return replace(instance, models={"m": model}, jobs=(*instance.jobs, *pairs))


def draw(foreground: Foreground, options: Options, path: Path) -> None:
    """Draw a foreground in grey with pieces in its holes."""
    instance = with_background(foreground, "pieces")
    own = instance.jobs[0].name
    found = fill(instance, [own], options, slowdown=1.1)
    path.write_bytes(timeline_image(replace(picture(found.instance, found.plan), foreground=frozenset({own}))))


def rows(chosen: Sequence[Foreground], kinds: Sequence[str], options: Options) -> Iterator[Sequence[object]]:
    """Fill each foreground with kinds of background at all slow-downs; a signal ends the table."""
    for foreground, kind, slowdown in product(chosen, kinds, map(float, SLOWDOWNS)):
        instance = with_background(foreground, kind)
        found = fill(instance, [job.name for job in foreground.instance.jobs], options, slowdown=slowdown)
        if found.interrupted:
            return
        yield (
            *(foreground.name, instance.cluster.gpu_count, kind, f"{slowdown:g}"),
            *(f"{found.slowdown:.3f}", found.plan.objective),
            *(f"{found.rate:.1f}", f"{found.bound:.1f}", f"{100 * found.gap:.1f} %", f"{100 * found.filled:.1f} %"),
            foreground.throughput(found) if kind == "pieces" else "-",
        )


def main() -> None:
    """Print the table, or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="a row (default: 20)")
    parser.add_argument("--only", default="", metavar="TEXT", help="foregrounds whose name has this")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8], metavar="N", help="of bursts (default: 8)")
    parser.add_argument("--background-batch", type=int, metavar="N", help="of a GPU, for throughput")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the first with pieces as an instance")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of background (default: both)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="threads (default: 2)")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the first with pieces, 10 %% allowed, as PNG")
    arguments = parser.parse_args()
    groups = pipelines(), *(bursts(gpus, arguments.background_batch) for gpus in arguments.gpus)
    chosen = [each for group in groups for each in group if arguments.only in each.name]
    options = Options(time_limit=arguments.seconds, threads=arguments.workers)
    if arguments.write is not None:
        save_instance(with_background(chosen[0], "pieces"), arguments.write)
        return
    if arguments.draw is not None:
        draw(chosen[0], options, arguments.draw)
        return
    print_table(HEADS, rows(chosen, arguments.kinds, options))


if __name__ == "__main__":
    main()

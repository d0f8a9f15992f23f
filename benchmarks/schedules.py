"""Named schedules of pipelines beside what `auto` finds with the same memory: ``python benchmarks/schedules.py``.

Equal stages have passes of 1000 us, each of a third of a micro-batch's work, and no delays. Measured ones are stages of
zero-bubble pipeline parallelism's own profiles (``pipeline/reference_results.json`` of the measured data,
``JIGSAW_SHARED``). Memory is in activations of a micro-batch. The search minimises the period, from the named schedules
that fit. DualPipe's row is its repository's formula, not a schedule of ours.
``--draw FILE.png`` makes the picture of docs/pipelines.md instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from common import print_table, shared_if_there

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.planning.pipeline.orders import ORDERS, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import peak_bytes, schedule_of
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.views.image import timeline_image
from jigsaw_opt.views.lanes import picture

HEADS = ("GPUs × micro-batches", "costs", "schedule", "memory", "period", "bubble", "auto", "bound", "ratio")
NAMED = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half")
UNEVEN = ((10000, 14000, 12000, 9000),) * 2 + ((9000, 12000, 10000, 8000), (1000,) * 3)
"""Forward, backward and weight passes and delays of the stages of the picture."""
HELD = 60
"""Bytes of a micro-batch's activations on a GPU; a multiple of the chunks that a GPU may have."""

Row = Sequence[object]


def costs(times: tuple[int, int, int, int], gpus: int, chunks: int) -> PipelineCosts:
    """Stages of one kind, with as many chunks a GPU."""
    forward, backward, weights, delay = times
    count = gpus * chunks

    def each(time: int) -> tuple[int, ...]:
        return (max(1, time // chunks),) * count

    return PipelineCosts(
        each(forward), each(backward), each(weights), (delay,) * (count - 1), activation_bytes=(HELD // chunks,) * count
    )


def problem(name: str, times: tuple[int, int, int, int], gpus: int, batches: int) -> PipelineProblem:
    """The pipeline that a named schedule is for."""
    chunks = 2 if name in ("interleaved", "v-half") else 1
    there = tuple(range(gpus))
    layout = PipelineLayout(there + there[::-1] if name == "v-half" else there * chunks, batches, True)
    return PipelineProblem(costs(times, gpus, chunks), layout)


def rows(gpus: int, batches: int, kind: str, times: tuple[int, int, int, int], seconds: float) -> Iterator[Row]:
    """Each named schedule, and the search with its memory on its stages."""
    forward, backward, weights, _ = times
    work = batches * (forward + backward + weights)
    for name in NAMED:
        pipeline = problem(name, times, gpus, batches)
        orders = ORDERS[name](pipeline.layout)
        schedule, peak = schedule_of(pipeline, orders, "pipeline", name), max(peak_bytes(pipeline, orders))
        limited = PipelineProblem(pipeline.costs, pipeline.layout, peak)
        _, found = search_schedule(limited, "pipeline", "cyclic", Options(time_limit=seconds, threads=2))
        yield (
            f"{gpus} × {batches}",
            kind,
            name,
            f"{peak / HELD:.1f}",
            schedule.period_us,
            f"{100 * schedule.bubble:.1f} %",
            found.objective,
            found.bound,
            f"{(found.objective or 0) / schedule.period_us:.4f}",
        )
    overlapped = forward + backward + weights
    dual = (gpus // 2 - 1) * max(0, overlapped + backward + weights - 3 * weights)
    bubble = f"{100 * dual / (work + dual):.1f} %"
    yield (f"{gpus} × {batches}", kind, "DualPipe, formula", gpus + 1, work + dual, bubble, "", "", "")


def all_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Equal and measured costs of all sizes."""
    profiles = measured()
    for gpus, multiple in product(*(map(int, gpu.split(",")) for gpu in (arguments.gpus, arguments.multiples))):
        kinds = {"equal": (1000, 1000, 1000, 0)}
        if gpus in profiles:
            kinds["measured"] = profiles[gpus]
        for kind, times in kinds.items():
            yield from rows(gpus, multiple * gpus, kind, times, arguments.seconds)


def draw(path: Path, seconds: float) -> None:
    """1F1B, ZB-H1 and the searched schedule of uneven stages, one server for each, in one picture."""
    held = PipelineCosts(*UNEVEN, activation_bytes=(1,) * 4)
    pipeline = PipelineProblem(held, PipelineLayout(tuple(range(4)), 6, True), 4)
    shown = [schedule_of(pipeline, ORDERS[name](pipeline.layout), name, name).finite for name in ("1f1b", "zb-h1")]
    instance, found = search_schedule(pipeline, "search", "finite", Options(time_limit=seconds, threads=2))
    assert found.plan is not None
    servers, jobs, plans = [], [], []
    for one, plan in [*shown, (instance, found.plan)]:
        servers.append(replace(one.cluster.servers[0], name=plan.instance))
        jobs.append(replace(one.task_graph_jobs[0], name=plan.instance))
        gpus = tuple(f"{plan.instance}/{gpu}" for gpu in range(4))
        plans.append(replace(plan.jobs[0], name=plan.instance, gpus=gpus))
    whole = replace(instance, name="1F1B, ZB-H1 and the searched schedule", cluster=Cluster(tuple(servers)))
    whole = replace(whole, jobs=tuple(jobs))
    end = max(plan.objective for _, plan in shown)
    drawn = replace(found.plan.with_jobs(tuple(plans)), instance=whole.name, instance_sha256=instance_sha256(whole))
    drawn = replace(drawn, status="feasible", objective=end)
    assert not check(whole, drawn)
    path.write_bytes(timeline_image(picture(whole, drawn), dots_per_inch=60))


def measured() -> dict[int, tuple[int, int, int, int]]:
    """By number of GPUs, costs of the first entry of the zero-bubble tables with so many stages."""
    results = shared_if_there("pipeline/reference_results.json")
    if results is None:
        print("no measured data, so equal costs only; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        return {}
    found: dict[int, tuple[int, int, int, int]] = {}
    for entry in json.loads(results.read_text(encoding="utf-8"))["zero_bubble"]:
        found.setdefault(entry["p"], (entry["f"], entry["b"], entry["w"], entry["comm"]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="4,8,16")
    parser.add_argument("--multiples", default="2,4", help="micro-batches for each GPU")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each search")
    parser.add_argument("--draw", type=Path, metavar="PNG", help="draw schedules of uneven stages instead")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        draw(arguments.draw, arguments.seconds)
        return
    print_table(HEADS, all_rows(arguments))


if __name__ == "__main__":
    main()

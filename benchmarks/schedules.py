"""Named schedules of pipelines beside what `auto` finds with the same memory: ``python benchmarks/schedules.py``.

Equal stages have passes of 1000 us, each of a third of a micro-batch's work, and no delays. Measured ones are stages of
zero-bubble pipeline parallelism's own profiles (``pipeline/reference_results.json`` of the measured data,
``JIGSAW_SHARED``). Memory is in activations of a micro-batch. The search minimises the period, from the named schedules
that fit. DualPipe's row is its repository's formula, not a schedule of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from jigsaw_opt.planning.pipeline.orders import ORDERS, PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import peak_bytes, schedule_of
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineCosts, PipelineProblem
from jigsaw_opt.solvers.options import Options

SHARED = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"))
RESULTS = SHARED / "data" / "pipeline" / "reference_results.json"
NAMED = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "v-half")
HELD = 60
"""Bytes of a micro-batch's activations on a GPU; a multiple of the chunks that a GPU may have."""


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


def rows(gpus: int, batches: int, kind: str, times: tuple[int, int, int, int], seconds: float) -> Iterator[str]:
    """Each named schedule, and the search with its memory on its stages."""
    forward, backward, weights, _ = times
    work = batches * (forward + backward + weights)
    for name in NAMED:
        pipeline = problem(name, times, gpus, batches)
        orders = ORDERS[name](pipeline.layout)
        schedule, peak = schedule_of(pipeline, orders, "pipeline", name), max(peak_bytes(pipeline, orders))
        limited = PipelineProblem(pipeline.costs, pipeline.layout, peak)
        _, found = search_schedule(limited, "pipeline", "cyclic", Options(time_limit=seconds, workers=2))
        cells = (
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
        yield f"| {' | '.join(map(str, cells))} |"
    overlapped = forward + backward + weights
    dual = (gpus // 2 - 1) * max(0, overlapped + backward + weights - 3 * weights)
    bubble = f"{100 * dual / (work + dual):.1f} %"
    yield f"| {gpus} × {batches} | {kind} | DualPipe, formula | {gpus + 1} | {work + dual} | {bubble} | | | |"


def measured() -> dict[int, tuple[int, int, int, int]]:
    """By number of GPUs, costs of the first entry of the zero-bubble tables with so many stages."""
    found: dict[int, tuple[int, int, int, int]] = {}
    if RESULTS.is_file():
        for entry in json.loads(RESULTS.read_text(encoding="utf-8"))["zero_bubble"]:
            found.setdefault(entry["p"], (entry["f"], entry["b"], entry["w"], entry["comm"]))
    else:
        print(
            f"no reference results at {RESULTS}: equal costs only; JIGSAW_SHARED says where data/ is", file=sys.stderr
        )
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="4,8,16")
    parser.add_argument("--multiples", default="2,4", help="micro-batches for each GPU")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each search")
    arguments = parser.parse_args()
    profiles = measured()
    print("| GPUs × micro-batches | costs | schedule | memory | period | bubble | auto | bound | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for gpus in map(int, arguments.gpus.split(",")):
        for multiple in map(int, arguments.multiples.split(",")):
            kinds = {"equal": (1000, 1000, 1000, 0)}
            if gpus in profiles:
                kinds["measured"] = profiles[gpus]
            for kind, times in kinds.items():
                for row in rows(gpus, multiple * gpus, kind, times, arguments.seconds):
                    print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

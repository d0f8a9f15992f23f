"""Pictures of the pages that explain: ``python benchmarks/figures.py docs`` (extra ``plot``), about a minute.

What they show is solved anew; ``fill`` reads a profile of DeepPool in the measured data (``JIGSAW_SHARED``).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import shared

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256, load_instance
from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool_runs
from jigsaw_opt.instances import load
from jigsaw_opt.planning.burst.exact import fastest_plan
from jigsaw_opt.planning.burst.instance import burst_instance
from jigsaw_opt.planning.burst.profiled import BurstSetting, profiled_costs
from jigsaw_opt.planning.fill import fill as filled
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.named import ORDERS
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
from jigsaw_opt.planning.pipeline.schedule import schedule_of
from jigsaw_opt.planning.pipeline.search import search_schedule
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.problem import Cluster, Instance, compile_instance
from jigsaw_opt.problem.task_graph import Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.bounds import lower_bound, names
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.image import draw_lanes, drawn_image, timeline_image
from jigsaw_opt.views.lanes import Interval, Picture, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
MS = 1000
DOTS = 60
UNEVEN = ((10000, 14000, 12000, 9000),) * 2 + ((9000, 12000, 10000, 8000), (1000,) * 3)
"""Forward, backward and weight passes and delays of the stages of the pipelines."""
RACKS = ("plain", "oversubscribed", "link-bound", "mixed-types", "tight-memory", "tree")


class Hole(NamedTuple):
    """The longest time that a GPU of the first job waits between two of its blocks: its lane, start and end."""

    lane: int
    start_us: int
    end_us: int


def alone_and_together() -> tuple[tuple[Picture, ...], Picture]:
    """Return the best plan of each job of `examples/worked.json` alone, one after the other, and that of all jobs."""
    whole = load_instance(ROOT / "examples" / "worked.json")
    alone: list[Picture] = []
    for number, job in enumerate(whole.jobs):
        drawn = _solved(replace(whole, jobs=(job,)))
        begin = alone[-1].end_us if alone else 0
        lanes = tuple(
            replace(lane, intervals=[_moved(interval, begin) for interval in lane.intervals]) for lane in drawn.lanes
        )
        alone.append(replace(drawn, lanes=lanes, end_us=begin + drawn.end_us, numbers=(number,)))
    return tuple(alone), _solved(whole)


def _solved(instance: Instance) -> Picture:
    plan = solve(instance, "cpsat", Options(time_limit=20, threads=1)).plan
    assert plan is not None and plan.status == "optimal"
    return picture(instance, plan)


def _moved(interval: Interval, by_us: int) -> Interval:
    return interval._replace(start_us=interval.start_us + by_us, end_us=interval.end_us + by_us)


def longest_hole(drawn: Picture) -> Hole:
    """Return the longest hole of the first job of a picture."""
    blocks = (
        (number, [interval for interval in lane.intervals if interval.job == 0])
        for number, lane in enumerate(drawn.lanes)
        if lane.kind == "gpu"
    )
    holes = (Hole(lane, one.end_us, other.start_us) for lane, own in blocks for one, other in pairwise(own))
    return max(holes, key=lambda hole: hole.end_us - hole.start_us)


def idea() -> bytes:
    """Two jobs one after the other, and below, on the same axis of time, planned together."""
    alone, together = alone_and_together()

    def draw(upper: Axes, lower: Axes) -> None:
        for axes, title, pictures in (
            (upper, "each job alone, one after the other", alone),
            (lower, "planned together", (together,)),
        ):
            for drawn in pictures:
                draw_lanes(axes, drawn, MS)
                _name_bars(axes, drawn)
            lanes, end = together.lanes, pictures[-1].end_us / MS
            axes.set_yticks(range(len(lanes)), [f"{lane.kind.replace('gpu', 'GPU')} {lane.name}" for lane in lanes])
            axes.set_ylim(len(lanes) - 0.5, -1.1)
            axes.set_xlim(0, 1.01 * alone[-1].end_us / MS)
            axes.axvline(end, color="black", linestyle="--")
            axes.set_title(f"{title}: {end:.2f} ms", loc="left", fontsize=11, fontweight="bold")
        lower.set_xlabel("time, ms")
        _point(upper, "a hole: the GPU waits for the rest of job a", longest_hole(alone[0]))
        _point(lower, "in the hole: a block of job b", longest_hole(together))

    return drawn_image((11, 5), "each job alone, and planned together", "png", draw, 2 * DOTS, panels=2)


def _name_bars(axes: Axes, drawn: Picture) -> None:
    """Write into each bar that has the room what it is."""
    for row, lane in enumerate(drawn.lanes):
        for bar in lane.intervals:
            job = drawn.instance.jobs[bar.job].name
            text = f"{job}, level {bar.level}" if bar.level else f"{job}, bucket {bar.number}"
            if bar.end_us - bar.start_us >= 250:
                middle = (bar.start_us + bar.end_us) / 2 / MS
                axes.text(middle, row, text, ha="center", va="center", fontsize=9)


def _point(axes: Axes, text: str, hole: Hole) -> None:
    tip = (0.2 * hole.start_us + 0.8 * hole.end_us) / MS
    arrow = {"arrowstyle": "->", "linewidth": 1.5, "relpos": (0, 0)}
    axes.annotate(text, (tip, hole.lane - 0.3), (tip + 0.1, -0.8), fontsize=10, va="center", arrowprops=arrow)


def search() -> bytes:
    """Makespan and bound over time, of a rack on which neither is at its end at once."""
    result = solve(load("rack/oversubscribed"), "auto", Options(time_limit=20, threads=2))
    times = [event.seconds for event in result.trajectory]

    def draw(axes: Axes) -> None:
        for label, values in (
            ("best plan", [event.objective for event in result.trajectory]),
            ("proven bound", [event.bound for event in result.trajectory]),
        ):
            pairs = [(at, value / 1000) for at, value in zip(times, values, strict=True) if value is not None]
            axes.step(*zip(*pairs, (result.seconds, pairs[-1][1])), where="post", label=label)
        axes.set_xlabel("seconds")
        axes.set_ylabel("makespan, ms")
        axes.legend()

    return drawn_image((9, 3.6), "rack/oversubscribed", "png", draw, DOTS)


def bounds() -> bytes:
    """What each instant relaxation proves by itself, as a share of the best bound of all instant ones."""
    operations = {name: compile_instance(load(f"rack/{name}")) for name in RACKS}
    best = {name: lower_bound(operation).value for name, operation in operations.items()}
    alone = {
        kind: [
            lower_bound(operation, [other for other in names() if other != kind]).value / best[name]
            for name, operation in operations.items()
        ]
        for kind in names()
    }
    shown = {kind: shares for kind, shares in alone.items() if any(shares)}

    def draw(axes: Axes) -> None:
        wide = 0.8 / len(shown)
        for k, (kind, shares) in enumerate(shown.items()):
            axes.bar([at + k * wide for at in range(len(RACKS))], [100 * share for share in shares], wide, label=kind)
        axes.set_xticks([at + 0.4 - wide / 2 for at in range(len(RACKS))], RACKS)
        axes.set_ylabel("% of the best instant bound")
        axes.legend(loc="lower right")

    return drawn_image((9, 3.6), "bounds of racks", "png", draw, DOTS)


def cycle() -> bytes:
    """One period of a cyclic plan."""
    instance = load("server/cyclic")
    plan = solve(instance, "auto", Options(time_limit=20, threads=1)).plan
    assert plan is not None
    return timeline_image(picture(instance, plan), dots_per_inch=DOTS)


def pipelines() -> bytes:
    """1F1B, ZB-H1 and the searched schedule of uneven stages, one server for each."""
    costs = PipelineCosts(*UNEVEN, activation_bytes=(1,) * 4)
    problem = PipelineProblem(costs, PipelineLayout(tuple(range(4)), 6, True), 4)
    timed = [schedule_of(problem, ORDERS[name](problem.layout), name, name).finite for name in ("1f1b", "zb-h1")]
    shown = [(each.instance, each.plan) for each in timed if each.plan is not None]
    instance, found = search_schedule(problem, "search", "finite", Options(time_limit=20, threads=2))
    assert found.plan is not None
    servers, jobs, plans = [], [], []
    for one, plan in [*shown, (instance, found.plan)]:
        print(f"{plan.instance}: {plan.objective / MS:g} ms, {plan.status}")
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
    shown_lanes = picture(whole, drawn)
    gpus_only = tuple(lane for lane in shown_lanes.lanes if lane.kind == "gpu")
    return timeline_image(replace(shown_lanes, lanes=gpus_only), dots_per_inch=DOTS)


def fill() -> bytes:
    """A burst of VGG, 10 % slower than it could be, with jobs of one GPU in its holes."""
    runs = read_deeppool_runs(shared("pipeline/deeppool/A100_vgg.prof").read_bytes())
    chosen = fastest_plan(profiled_costs(runs, BurstSetting(8, 64, 266_000)), 2.0, "exact")
    burst = burst_instance(chosen, "vgg", "cyclic")
    piece = TaskGraph((Slot("gpu"),), (TaskGraphBlock("piece", ("gpu",), {"gpu": 500}),))
    pieces = tuple(TaskGraphJob(f"one{gpu}", piece, 1) for gpu in range(8))
    own = burst.jobs[0].name
    options = Options(time_limit=20, threads=2)
    found = filled(replace(burst, jobs=(*burst.jobs, *pieces)), [own], options, slowdown=1.1)
    return timeline_image(replace(picture(found.instance, found.plan), foreground=frozenset({own})))


PICTURES = {draw.__name__: draw for draw in (idea, search, bounds, cycle, pipelines, fill)}


def main() -> None:
    """Write the pictures into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=PICTURES, action="append")
    arguments = parser.parse_args()
    for name in arguments.only or PICTURES:
        path = arguments.folder / f"{name}.png"
        path.write_bytes(PICTURES[name]())
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()

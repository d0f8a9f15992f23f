"""Pictures of the pages that explain: ``python benchmarks/figures.py docs`` (extra ``plot``), about a minute.

What they show is solved anew. Measured figures stand in the texts, with commands of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances import load, profile
from jigsaw_opt.problem import Cluster, FreeDepth, FullDepth, Instance, Job, Link, Plan, Server, cut
from jigsaw_opt.solvers.bounds import lower_bound, names
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.image import drawn_image, timeline_image
from jigsaw_opt.views.lanes import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS = 60
RACKS = ("plain", "oversubscribed", "link-bound", "mixed-types", "tight-memory", "tree")


def idea() -> bytes:
    """The same three jobs at full depth and with partial backpropagation, one above the other."""
    shown = [(name, *_planned(name, rule)) for name, rule in (("full", FullDepth()), ("partial", FreeDepth(1)))]
    cluster = Cluster(tuple(server for _, one, _ in shown for server in one.cluster.servers))
    links = tuple(link for _, one, _ in shown for link in one.cluster.links)
    jobs = tuple(job for _, one, _ in shown for job in one.jobs)
    planned = tuple(job for _, _, plan in shown for job in plan.jobs)
    whole = replace(
        shown[0][1], name="full depth above, partial below", cluster=replace(cluster, links=links), jobs=jobs
    )
    both = replace(shown[0][2].with_jobs(planned), instance=whole.name, instance_sha256=instance_sha256(whole))
    drawn = picture(whole, both)
    return timeline_image(replace(drawn, numbers=(0, 1, 2) * 2), dots_per_inch=DOTS)


def _planned(name: str, rule: FullDepth | FreeDepth) -> tuple[Instance, Plan]:
    servers = tuple(Server(f"{name}{k}", "v100", 2, 32 * 10**9, 150 * 10**9) for k in range(2))
    cluster = Cluster(servers, (), (Link(f"{name} cable", (f"{name}0", f"{name}1"), 12_500_000_000),))
    asked = (("wide", "vgg16", 4, 4), ("pair", "resnet50", 2, 8), ("single", "resnet50", 1, 6))
    jobs = tuple(Job(f"{job} {name}", model, workers, n, depth=rule) for job, model, workers, n in asked)
    models = {model: profile(model, batch, ["v100"], 6) for model, batch in (("vgg16", 32), ("resnet50", 64))}
    instance = Instance(name, cluster, models, jobs)
    plan = solve(instance, "auto", Options(time_limit=20, threads=1)).plan
    assert plan is not None
    return instance, plan


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
    operations = {name: cut(load(f"rack/{name}")) for name in RACKS}
    best = {name: lower_bound(it).value for name, it in operations.items()}
    alone = {
        kind: [
            lower_bound(it, [other for other in names() if other != kind]).value / best[name]
            for name, it in operations.items()
        ]
        for kind in names()
    }
    shown = {kind: shares for kind, shares in alone.items() if any(shares)}

    def draw(axes: Axes) -> None:
        wide = 0.8 / len(shown)
        for k, (kind, shares) in enumerate(shown.items()):
            axes.bar([at + k * wide for at in range(len(RACKS))], [100 * it for it in shares], wide, label=kind)
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


PICTURES: dict[str, Callable[[], bytes]] = {"idea": idea, "search": search, "bounds": bounds, "cycle": cycle}


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

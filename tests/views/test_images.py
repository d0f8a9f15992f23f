"""Still pictures of plans of every kind; those in SVG are read back."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jigsaw_opt
from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Plan, Segment, Server
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.image import timeline_image
from jigsaw_opt.views.lanes import GREY, period_picture, picture
from tests.checking.test_phased_plans import INSTANCE, decoded, document
from tests.extras import needs_plot
from tests.refusals import ends
from tests.views.test_task_graph_views import pipe
from tests.views.test_views import crossing, embedded

pytestmark = needs_plot


def texts(image: bytes) -> list[str]:
    return [(found.text or "").strip() for found in ET.fromstring(image).iter() if found.tag.endswith("}text")]


def test_svg_names_the_lanes_and_jobs_of_listed_and_cyclic_plans() -> None:
    for instance, plan in (pipe(), crossing()):
        shown = picture(instance, plan)
        image = timeline_image(shown, "svg")
        assert image == timeline_image(shown, "svg")
        lanes, jobs = [lane.name for lane in shown.lanes], [job.name for job in plan.jobs]
        assert {*lanes, *jobs, "ms"} <= set(texts(image))


def test_svg_of_a_phased_plan_has_a_row_for_each_job_in_the_order_of_groups() -> None:
    plan = decoded(document())
    drawn = picture(INSTANCE, plan)
    image = timeline_image(drawn, "svg")
    rows = [job.name for group in plan.groups for job in INSTANCE.jobs if job.name in str(group)]
    assert len(plan.groups) > 1 and [lane.name for lane in drawn.lanes] == rows
    assert {*rows, *(f"{gpu} memory" for gpu in drawn.memory)} <= set(texts(image))
    assert timeline_image(picture(INSTANCE, plan)).startswith(b"\x89PNG")


def one_after_another() -> tuple[Instance, Plan, Plan]:
    """Two long jobs on a GPU with memory for one of them, listed and in phases."""
    models = {"m": Model((Segment("s", {"v": 5}, {"v": 5}, 100, 0),), state_factor=1)}
    cluster = Cluster((Server("s", "v", 1, 150, 1), Server("t", "v", 1, 150, 1)))
    jobs = tuple(Job(name, "m", 1, 2) for name in ("first", "second", "third"))
    instance = Instance("scarce", cluster, models, jobs)
    plans = [solve(instance, method).plan for method in ("greedy", "phased")]
    assert plans[0] is not None and plans[1] is not None
    return instance, *plans  # type: ignore[return-value]


def test_memory_is_a_row_of_every_picture_and_says_who_takes_it() -> None:
    instance, *plans = one_after_another()
    for plan in plans:
        drawn = picture(instance, plan)
        holders = {job for use in drawn.memory.values() for step in use.steps for job in step.jobs}
        last = max(drawn.memory.values(), key=lambda use: len(use.steps))
        shown = [(step.bytes, len(step.jobs)) for step in last.steps]
        assert shown == [(100, 1), (100, 1)], "one takes the place of the other"
        told = texts(timeline_image(drawn, "svg"))
        assert {f"{gpu} memory" for gpu in drawn.memory} <= set(told)
        assert all(told.count(name) > 1 for name in holders), "at its own row or in the legend, and in memory"
        data = embedded(timeline_html(drawn))
        rows = data["memory"] if plan.is_phased else [lane for lane in data["lanes"] if lane["kind"] == "memory"]
        assert {name for row in rows for name in row["holders"]} >= holders


def test_every_gpu_of_a_plan_has_a_row_of_memory_where_one_has() -> None:
    instance, plan, phased = one_after_another()
    wide = replace(instance.cluster.servers[1], gpu_memory=400)
    instance = replace(instance, cluster=replace(instance.cluster, servers=(instance.cluster.servers[0], wide)))
    for each in (plan, phased):
        used = {gpu for _, _, phase in each.all_phases() for job in phase.jobs for gpu in job.gpus}
        assert used == {"s/0", "t/0"} == picture(instance, each).memory.keys()


def test_a_period_of_a_phase_shows_who_is_in_memory() -> None:
    instance, _, plan = one_after_another()
    drawn = picture(instance, plan)
    assert plan.is_phased
    for _, _, phase in plan.all_phases():
        period = period_picture(drawn, phase)
        assert period.memory.keys() == {lane.name for lane in period.lanes if lane.name in drawn.memory}
        there = {job for use in period.memory.values() for step in use.steps for job in step.jobs}
        assert there <= {job.name for job in phase.jobs}
        assert all(use.steps[-1].end_us == period.end_us for use in period.memory.values())


def test_plot_draws_what_the_ending_says(tmp_path: Path, pair_path: Path, pair_plan_path: Path) -> None:
    instance, plan = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(INSTANCE, instance)
    save_plan(decoded(document()), plan)
    for sources, name, begin in (
        ((instance, plan), "phased.png", b"\x89PNG"),
        ((pair_path, pair_plan_path), "listed.svg", b"<?xml"),
    ):
        assert main(["plot", *map(str, sources), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_a_foreground_of_a_phased_plan_is_grey_and_says_what_is_filled(tmp_path: Path) -> None:
    plan, front = decoded(document()), INSTANCE.jobs[0].name
    drawn = replace(picture(INSTANCE, plan), foreground=frozenset({front}))
    assert [colour == GREY for colour in drawn.colours] == [job.name == front for job in INSTANCE.jobs]
    lasts = dict.fromkeys((job.name for job in INSTANCE.jobs), 0)
    for _, _, phase in plan.all_phases():
        for job in phase.jobs:
            every = (block for iteration in job.iterations for block in iteration.blocks)
            lasts[job.name] += phase.count * sum(block.end_us - block.start_us for block in every)
    holes = INSTANCE.cluster.gpu_count * drawn.end_us - lasts.pop(front)
    assert drawn.filled == sum(lasts.values()) / holes
    save_instance(INSTANCE, tmp_path / "i.json")
    save_plan(plan, tmp_path / "p.json")
    call = ["plot", str(tmp_path / "i.json"), str(tmp_path / "p.json"), "--foreground"]
    assert main([*call, front, "-o", str(tmp_path / "p.html")]) == 0
    data = embedded((tmp_path / "p.html").read_text())
    assert data["facts"] == [["holes filled", f"{100 * drawn.filled:.1f} %"]]
    ends("2: unknown-name --foreground", *call, "nobody")


def test_a_notebook_shows_a_phased_plan() -> None:
    assert "phases of all jobs" in jigsaw_opt.picture(INSTANCE, decoded(document()))._repr_html_()

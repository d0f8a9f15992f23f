"""Still pictures of plans of every kind; those in SVG are read back."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.views.image import phases_image, timeline_image
from jigsaw_opt.views.lanes import picture
from tests.checking.test_phased_plans import INSTANCE, decoded, document
from tests.extras import needs_plot
from tests.views.test_shaped_views import pipe
from tests.views.test_views import crossing

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
    image = phases_image(INSTANCE, plan, "svg")
    rows = [job.name for group in plan.groups for job in INSTANCE.jobs if job.name in str(group)]
    shown = [text for text in texts(image) if text in {job.name for job in INSTANCE.jobs}]
    assert len(plan.groups) > 1 and shown == rows
    assert phases_image(INSTANCE, plan).startswith(b"\x89PNG")


def test_plot_draws_what_the_ending_says(tmp_path: Path, pair_path: Path, pair_plan_path: Path) -> None:
    instance, plan = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(INSTANCE, instance)
    save_plan(decoded(document()), plan)
    for name, sources in (("long", (instance, plan)), ("listed", (pair_path, pair_plan_path))):
        for ending, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
            written = tmp_path / (name + ending)
            assert main(["plot", *map(str, sources), "-o", str(written)]) == 0
            assert written.read_bytes().startswith(begin)

"""The page of the concepts and its picture show plans that are solved here, and no other number."""

from __future__ import annotations

import re

import pytest

from benchmarks.figures import alone_and_together, idea, longest_hole
from jigsaw_opt.documents import decode_instance, load_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.lanes import Picture
from tests.extras import needs_plot
from tests.pages import ROOT, SPECIFICATION, section

PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "worked.json"


@pytest.fixture(scope="module")
def pictures() -> tuple[tuple[Picture, ...], Picture]:
    pytest.importorskip("ortools")
    return alone_and_together()


def test_the_example_is_that_of_the_specification() -> None:
    found = re.search(r"```json\n(.*?)```", section(SPECIFICATION.read_text(encoding="utf-8"), "Instance"), re.DOTALL)
    assert found and decode_instance(found[1]) == load_instance(EXAMPLE)


def test_every_time_of_the_page_is_one_of_the_plans(pictures: tuple[tuple[Picture, ...], Picture]) -> None:
    (first, second), together = pictures
    spans = {bar.end_us - bar.start_us for lane in together.lanes for bar in lane.intervals}
    iteration = {bar.start_us for lane in first.lanes for bar in lane.intervals if bar.iteration == 1 and bar.level}
    own = {first.end_us, second.end_us - first.end_us, second.end_us}
    bound = solve(load_instance(EXAMPLE), "cpsat", Options(time_limit=20, threads=1)).bound
    assert {int(time) for time in re.findall(r"(\d+) µs", PAGE)} == spans - {300} | {min(iteration)} | own | {bound}
    assert bound == together.end_us < second.end_us


def test_a_level_of_the_page_has_the_time_that_the_page_says() -> None:
    durations = load_instance(EXAMPLE).models["net"].block_us("v100")
    assert f"takes {durations[1]} µs at level 2" in PAGE and f"and {durations[0]} µs at level 1" in PAGE


def test_the_hole_of_one_job_holds_a_block_of_the_other(pictures: tuple[tuple[Picture, ...], Picture]) -> None:
    alone, together = pictures
    lane, start, end = longest_hole(alone[0])
    assert not any(start < bar.start_us < end for bar in alone[0].lanes[lane].intervals)
    lane, start, end = longest_hole(together)
    assert [bar.job for bar in together.lanes[lane].intervals if start <= bar.start_us < end] == [1]


@needs_plot
def test_the_picture_is_drawn() -> None:
    assert idea().startswith(b"\x89PNG")

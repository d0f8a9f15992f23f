"""What all pages share: colours that text can be read on, and files that are put into each page."""

from __future__ import annotations

import re

import pytest

from jigsaw_opt.views.colour import GREY, job_colour, luminance
from jigsaw_opt.views.page import template

PAGES = ("timeline.html", "phases.html", "simulation.html", "failures.html", "advice.html", "sweep.html", "bench.html")


def contrast(first: str, second: str) -> float:
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_black_text_is_read_on_every_colour_of_a_job() -> None:
    colours = [*(job_colour(index) for index in range(200)), GREY]
    assert len(set(colours)) > 190
    assert min(contrast("#000000", colour) for colour in colours) >= 4.5


def test_neighbours_differ() -> None:
    assert all(job_colour(index) != job_colour(index + 1) for index in range(200))
    far = [abs(luminance(job_colour(index)) - luminance(job_colour(index + 1))) for index in range(7, 200)]
    assert min(far) > 0.05


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_look_and_readable_text(page: str) -> None:
    text = template(page)
    assert set(re.findall(r"\{\{.*?\}\}", text)) == {"{{title}}", "{{data}}"}
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", root)) for root in re.findall(r":root \{(.*?)\}", text)]
    for theme in (theme for theme in themes if "paper" in theme):
        for ink in ("ink", "dim", "accent"):
            assert min(contrast(theme[ink], theme[ground]) for ground in ("paper", "panel")) >= 4.5

"""What all pages share: colours that text can be read on, files that are put into each page, and words of proofs."""

from __future__ import annotations

import re

import pytest

from jigsaw_opt.instances import load
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.solvers.bounds.driver import lower_bound
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import Bound
from jigsaw_opt.views.explained import bound_text, calculation, claim_text
from jigsaw_opt.views.lanes import GREY, job_colour, luminance
from jigsaw_opt.views.page import template

PAGES = (
    *("timeline.html", "phases.html", "simulation.html", "failures.html"),
    *("advice.html", "sweep.html", "bench.html", "cluster.html"),
)


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


def test_work_that_is_shared_out_is_divided_among_those_that_share_it() -> None:
    terms = (Term("head", 0), Term("work", 10_000, jobs=("a",)), Term("work", 14_699, jobs=("b",)))
    proof = Proof("GPU work on v100", "0 + ceil((10000 + 14699) / 2) + 0 = 12350", (*terms, Term("capacity", 2, "")))
    bound = Bound(12_350, Proof(proof.sentence, proof.arithmetic, proof.terms, relaxation="gpu_work"))
    assert bound_text("makespan", bound) == (
        "No plan ends before 12.35 ms. Kind of bound: GPU work. GPU work on v100: it may begin at once;"
        " it takes 12.35 ms for 2 jobs even if it is shared out evenly."
    )
    assert "at once" not in bound_text("period", bound)
    assert claim_text(13_000, 12_350) == "The plan file claims a bound of 13,000, which was not checked."
    assert claim_text(12_350, 12_350) == ""


def test_an_equation_of_one_number_is_that_number() -> None:
    assert calculation("makespan", Proof("a", "12349789 = 12349789")) == "12349789 µs"
    assert calculation("weighted_completion", Proof("a", "1 + 2 = 3")) == "1 + 2 = 3 weight·µs"
    assert calculation("makespan", Proof("a", "9 <= 8")).endswith("9 <= 8, which is false")
    assert calculation("makespan", Proof("search by cpsat")) == ""


def test_every_bound_of_bundled_pipelines_says_what_it_adds_up() -> None:
    for name in ("pipeline/plain", "pipeline/sharded", "pipeline/split-backward"):
        instance = load(name)
        text = bound_text(instance.objective, lower_bound(compile_instance(instance)))
        assert ": " in text.split("Kind of bound: ")[1] and " take" in text

"""The page of a phased plan in a real headless Chromium: its 100 phases are chosen by their bars or in turn."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Model,
    Phase,
    PhaseGroup,
    Plan,
    Segment,
    Server,
)
from jigsaw_opt.problem.measured.replay import MeasuredPhase, Replay
from jigsaw_opt.problem.measured.times import MeasuredJob, Timeline
from jigsaw_opt.views.explained import explained_picture
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import picture
from jigsaw_opt.views.replay import replay_picture
from tests.views.test_html_in_browser import browser, show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("browser")
PHASES = 100


def staged() -> tuple[Instance, Plan]:
    """A job in 100 phases, each longer than the one before, beside one that has a GPU and a group of its own."""
    model = Model((Segment("s", {"v": 10}, {"v": 20}, 1, 1),))
    cluster = Cluster((Server("a", "v", 2, 100, 1),))
    lengths = [1 + phase for phase in range(PHASES)]
    jobs = (Job("<i>staged<i>", "m", 1, sum(lengths)), Job("lone", "m", 1, 3))
    step = (Iteration((Block(1, 0, 30),), ()),)
    starts = [30 * sum(lengths[:phase]) for phase in range(PHASES)]
    phases = (
        Phase(start, 30, length, (JobPlan(jobs[0].name, ("a/0",), step),))
        for start, length in zip(starts, lengths, strict=True)
    )
    lone = Phase(0, 30, 3, (JobPlan("lone", ("a/1",), step),))
    groups = (PhaseGroup(tuple(phases)), PhaseGroup((lone,)))
    end = 30 * sum(lengths)
    return Instance("many", cluster, {"m": model}, jobs), Plan("many", "", "optimal", end, end, groups)


def page_of(instance: Instance, plan: Plan) -> str:
    return timeline_html(explained_picture(picture(instance, plan)))


SHOWN = """
const title = document.getElementById("phase").textContent;
const chosen = [...document.querySelectorAll(".chosen")].map(it => it.dataset.phase);
return [title, chosen.join(), document.getElementById("before").disabled, document.getElementById("after").disabled];
"""
PERIOD_IS_READY = "return document.body && document.body.dataset.ready"


def test_a_phase_is_chosen_by_its_bar_by_keys_or_by_the_address(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, page_of(*staged()))
    assert browser.execute_script("return document.querySelectorAll('.axis button').length") == PHASES + 1
    assert browser.execute_script("return document.querySelector('.row span').textContent") == "<i>staged<i>"
    title, *state = browser.execute_script(SHOWN)
    assert title.startswith("group 0 phase 0: 0 s to 30 µs, 1 period of 30 µs")
    assert state == ["0", True, False]
    browser.find_element("id", "after").click()
    title, *state = browser.execute_script(SHOWN)
    assert title.startswith("group 0 phase 1: 30 µs to 90 µs, 2 periods") and state == ["1", False, False]
    browser.find_element("css selector", f".axis button[data-phase='{PHASES}']").click()
    title, *state = browser.execute_script(SHOWN)
    assert title.startswith("group 1 phase 0: 0 s to 90 µs") and state == [str(PHASES), False, True]
    browser.get((tmp_path / "plan.html").as_uri() + "#phase=7")
    browser.refresh()
    browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))")
    assert browser.execute_script("return [shown, location.hash]") == [8, "#phase=8"]


def test_the_chosen_period_is_a_timeline_that_is_in_sight(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, page_of(*staged()))
    rows, period = (browser.find_element("id", name) for name in ("rows", "period"))
    assert rows.rect["height"] < 0.5 * browser.execute_script("return innerHeight")
    assert period.rect["y"] < browser.execute_script("return innerHeight")
    browser.switch_to.frame(period)
    try:
        assert browser.execute_script(PERIOD_IS_READY) == "true"
        assert browser.execute_script("return data.jobs.length") == 1
        assert browser.execute_script("return document.querySelector('#jobs li').textContent").startswith("<i>staged")
    finally:
        browser.switch_to.default_content()


def test_it_says_in_short_what_is_late_and_lists_jobs_as_asked(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, page_of(*staged()))
    short = browser.find_element("id", "short").text
    assert re.search(r"<i>staged<i>, .*151\.5 ms.* 100 %", short)
    assert re.search(r"group 0 phase 99, .* 3 ms, 2\.0 % .* 100 %", short)
    assert re.search(r"151\.5 ms\. Kind of bound:", short)
    names = "return [...document.querySelectorAll('.row > span')].map(it => it.textContent)"
    browser.execute_script("$('order').value = 'by name'; listRows();")
    memory = ["a/0 memory", "a/1 memory"]
    assert browser.execute_script(names) == ["<i>staged<i>", "lone", *memory]
    orders = "return [...document.querySelectorAll('#order option')].map(it => it.textContent)"
    assert "as given" in browser.execute_script(orders)
    browser.find_element("id", "find").send_keys("lon")
    assert browser.execute_script(names) == ["lone", *memory]
    browser.execute_script("document.querySelector('.axis button').dispatchEvent(new MouseEvent('mousemove'))")
    tip = browser.execute_script("return $('tip').textContent")
    assert [re.findall(r"lone|\d+(?: µs| %)?", line) for line in tip.splitlines()] == [
        ["lone", "1", "0"],
        ["0 µs", "90 µs", "90 µs"],
        ["3", "30 µs", "1"],
        ["100 %"],
    ]


def test_a_short_phase_with_a_small_share_idles_less_than_a_long_one(browser: Chrome, tmp_path: Path) -> None:
    instance, plan = staged()
    first, last = plan.groups[0].phases[0], plan.groups[0].phases[-1]
    short = replace(first, period_us=100)  # computes 30 %, for 30 µs
    long = replace(last, start_us=100, period_us=60)  # computes 50 %, for 5.97 ms
    few = replace(plan, groups=(replace(plan.groups[0], phases=(short, long)),))
    show(browser, tmp_path, page_of(instance, few))
    short_text = browser.find_element("id", "short").text
    assert re.search(r"group 0 phase 1: 2\.985 ms .* 1 GPU, 50 % .* 5\.97 ms", short_text)
    assert "whole plan" in browser.find_element("id", "which").text


def test_what_was_measured_stands_below_and_changes_nothing_that_is_said_of_the_plan(
    browser: Chrome, tmp_path: Path
) -> None:
    instance, plan = staged()
    show(browser, tmp_path, page_of(instance, plan))
    usual = browser.find_element("id", "short").text
    phases = []
    for g, p, phase in plan.all_phases():
        jobs = tuple(MeasuredJob(job.name, job.gpus, 0, (), ()) for job in phase.jobs)
        times = phase.end_us, 2 * phase.start_us, 2 * phase.end_us, None
        phases.append(MeasuredPhase(g, p, phase.repeats, phase.count, None, *times, Timeline(phase.count, (), jobs)))
    replay = Replay(plan.instance, "", "", {}, (), tuple(phases), {})
    show(browser, tmp_path, timeline_html(explained_picture(replay_picture(instance, plan, replay))))
    assert browser.find_element("id", "short").text == usual
    names = browser.execute_script("return [...document.querySelectorAll('.row > span')].map(it => it.textContent)")
    assert names[:4] == ["<i>staged<i>", "<i>staged<i> measured", "lone", "lone measured"]
    assert "303 ms (+100.0 %)" in browser.find_element("id", "about").text
    browser.execute_script(
        "[...document.querySelectorAll('.axis button')].at(-1).dispatchEvent(new MouseEvent('mousemove'))"
    )
    tip = browser.execute_script("return $('tip').textContent")
    assert [re.findall(r"lone measured|\d+(?: µs)?", line) for line in tip.splitlines()] == [
        ["lone measured", "1", "0"],
        ["0 µs", "180 µs", "180 µs"],
    ]


def test_a_period_without_a_bound_shows_none_and_an_explained_one_its_own(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, page_of(*staged()))
    assert browser.execute_script("return data.phases[0].page.bound") is None
    instance, plan = staged()
    few = replace(plan, groups=(replace(plan.groups[0], phases=plan.groups[0].phases[:2]), plan.groups[1]))
    show(browser, tmp_path, page_of(instance, few))
    page = browser.execute_script("return data.phases[1].page")
    assert page["name"] == "a period of group 0 phase 1" and page["status"].endswith("optimal")
    assert page["bound"] == 30 and page["jobs"][0]["story"]["spent"] == [["compute", 30, "compute"]]

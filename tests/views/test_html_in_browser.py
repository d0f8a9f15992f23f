"""The timeline in a real headless Chromium: it draws, answers hover and zoom, and bears 50 000 blocks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jigsaw_opt.problem import Block, Cluster, Instance, Iteration, Job, JobPlan, Model, Plan, Segment, Server
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import picture

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.xdist_group("browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1300,700",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Debian's chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra dev)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


def show(browser: Chrome, folder: Path, page: str) -> None:
    path = folder / "plan.html"
    path.write_text(page, encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.body.dataset.ready") == "true"
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


MOVE = """
const at = {clientX: arguments[0], clientY: arguments[1]};
document.getElementById("plan").dispatchEvent(new PointerEvent("pointermove", at));
"""
CENTRE = """
const box = canvas.getBoundingClientRect();
return [box.left + x(arguments[1]), box.top + AXIS + row * (arguments[0] + 0.5) - view.top];
"""
PIXEL = """
draw();
const box = canvas.getBoundingClientRect(), scale = devicePixelRatio;
const at = [(arguments[0] - box.left) * scale, (arguments[1] - box.top) * scale + 5];
return Array.from(pen.getImageData(...at, 1, 1).data).join();
"""


def move_to(browser: Chrome, x: float, y: float) -> None:
    browser.execute_script(MOVE, x, y)


def centre(browser: Chrome, lane: int, moment: float) -> tuple[float, float]:
    found: tuple[float, float] = tuple(browser.execute_script(CENTRE, lane, moment))
    return found


def test_hover_names_job_iteration_worker_and_level(
    browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan
) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    move_to(browser, *centre(browser, 1, 300))
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert tip.splitlines()[:2] == ["a  (net)", "iteration 0 · worker 1 · level 1 of 2"]
    move_to(browser, *centre(browser, 0, 1500))
    assert browser.execute_script("return document.getElementById('tip').style.display") == "none"


def test_zoom_and_highlight(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.find_element("id", "in").click()
    assert browser.execute_script("return view.to - view.from") == pytest.approx(0.6 * 1800)
    browser.find_element("id", "all").click()
    assert browser.execute_script("return [view.from, view.to]") == [0, 1800]
    browser.find_element("css selector", "#jobs li").click()
    assert browser.execute_script("return view.job") == 0


def test_chain_goes_back_to_the_start(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'c', bubbles: true}))")
    starts = browser.execute_script("return [...view.chain].map(i => [i[START], i[END]])")
    assert starts[0][1] == browser.execute_script(
        "return Math.max(...data.lanes.flatMap(l => l.intervals.map(i => i[END])))"
    )
    assert len(starts) > 1 and all(later[0] == sooner[1] for later, sooner in pairwise(starts))
    assert "steps" in browser.execute_script("return document.getElementById('said').textContent")
    first = "pairsOf([...view.chain].at(-1)[JOB]).find(([, i]) => i === [...view.chain].at(-1))"
    assert "as it ends begins" in browser.execute_script(f"return describe(...{first})")


def test_holes_are_drawn_unlike_blocks(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    block = browser.execute_script(PIXEL, *centre(browser, 0, 300))
    hole = browser.execute_script(PIXEL, *centre(browser, 0, 1500))
    assert block != hole


def many_blocks(lanes: int, blocks: int) -> tuple[Instance, Plan]:
    model = Model((Segment("s", {"v": 10}, {"v": 20}, 1, 1),))
    cluster = Cluster((Server("a", "v", lanes, 100, 1),))
    jobs = tuple(Job(f"job{k}", "m", 1, blocks) for k in range(lanes))
    plans = tuple(
        JobPlan(job.name, (f"a/{k}",), tuple(Iteration((Block(1, 40 * i, 40 * i + 30),), ()) for i in range(blocks)))
        for k, job in enumerate(jobs)
    )
    return Instance("many", cluster, {"m": model}, jobs), Plan("many", "", "feasible", 40 * blocks - 10, 1, None, plans)


def test_fifty_thousand_blocks_stay_usable(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(picture(*many_blocks(100, 500))))
    drawn = browser.execute_script("draw(); return +canvas.dataset.drawn")
    # A lane never costs more bars than pixels, however many blocks it holds.
    assert 0 < drawn <= 50_000
    browser.execute_script("clampView(0, 400); draw();")
    assert browser.execute_script("return +canvas.dataset.drawn") < 100 * 12
    move_to(browser, *centre(browser, 0, 15))
    assert "job0" in browser.execute_script("return document.getElementById('tip').textContent")


def test_find_jumps_and_the_address_keeps_what_is_shown(
    browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan
) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.execute_script("clampView(0, 200); draw();")
    browser.find_element("id", "find").send_keys("b\ue007")
    assert browser.execute_script("return view.job") == 1
    shown = browser.execute_script("return [view.from, view.to]")
    assert shown == [550, 750]
    browser.get((tmp_path / "plan.html").as_uri() + "#550,750,0,1")
    browser.refresh()
    assert browser.execute_script("return [view.from, view.to, view.job]") == [*shown, 1]


def test_keys_are_told(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.find_element("id", "help").click()
    assert browser.execute_script("return document.getElementById('keys').open") is True

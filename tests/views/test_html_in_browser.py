"""The timeline in a real headless Chromium: it draws, answers hover and zoom, and bears 50 000 blocks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from jigsaw_opt.problem import Block, Cluster, Instance, Iteration, Job, JobPlan, Link, Model, Plan, Segment, Server
from jigsaw_opt.views.explained import explained_picture
from jigsaw_opt.views.html import timeline_html
from jigsaw_opt.views.lanes import picture
from tests.views.test_task_graph_views import pipe

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
return [box.left + x(arguments[1]), box.top + yOf(data.lanes[arguments[0]])];
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


def test_hover_names_job_iteration_worker_and_level_and_holes_look_otherwise(
    browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan
) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    move_to(browser, *centre(browser, 1, 300))
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert tip.splitlines()[:2] == ["a  (net)", "iteration 0 · worker 1 · level 1 of 2"]
    hole = centre(browser, 0, 1500)
    move_to(browser, *hole)
    assert browser.execute_script("return document.getElementById('tip').style.display") == "none"
    assert browser.execute_script(PIXEL, *centre(browser, 0, 300)) != browser.execute_script(PIXEL, *hole)


def test_zoom_highlight_and_help(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.find_element("id", "in").click()
    assert browser.execute_script("return view.to - view.from") == pytest.approx(0.6 * 1800)
    browser.find_element("id", "all").click()
    assert browser.execute_script("return [view.from, view.to]") == [0, 1800]
    browser.find_element("css selector", "#jobs li").click()
    assert browser.execute_script("return view.job") == 0
    browser.find_element("id", "help").click()
    assert browser.execute_script("return document.getElementById('keys').open") is True


def test_chain_goes_back_to_the_start(browser: Chrome, tmp_path: Path, pair: Instance, pair_plan: Plan) -> None:
    show(browser, tmp_path, timeline_html(picture(pair, pair_plan)))
    browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'c', bubbles: true}))")
    steps = browser.execute_script("return [...view.chain.keys()].map(i => [i[START], i[END]])")
    assert steps[-1][1] == browser.execute_script(
        "return Math.max(...data.lanes.flatMap(l => l.intervals.map(i => i[END])))"
    )
    assert len(steps) > 1 and all(sooner[1] == later[0] for sooner, later in pairwise(steps))
    assert "steps" in said(browser)
    first = "[...view.chain].map(([i, lane]) => [lane, i])[0]"
    assert "begins" in browser.execute_script(f"return describe(...{first})")


def press(browser: Chrome, *keys: str) -> None:
    for key in keys:
        browser.execute_script(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")


def said(browser: Chrome) -> str:
    return str(browser.execute_script("return document.getElementById('said').textContent"))


def test_an_explained_job_says_what_its_chain_waits_for(browser: Chrome, tmp_path: Path) -> None:
    instance, plan = racks()
    jobs = (instance.jobs[0], replace(instance.jobs[1], release_us=20), instance.jobs[2])
    show(browser, tmp_path, timeline_html(explained_picture(picture(replace(instance, jobs=jobs), plan))))
    short = browser.find_element("id", "short").text
    shares = re.findall(r"compute (\d+) %, exchange (\d+) %, waiting (\d+) %", short)
    assert {("75", "0", "25"), ("90", "0", "10")} <= {*shares}, "time before its release is no wait"
    show(browser, tmp_path, timeline_html(explained_picture(picture(instance, plan))))
    short = browser.find_element("id", "short").text
    assert "Waits most" in short and re.search(r"a GPU: a0/0, .* first", short)
    assert "Kind of bound:" in short
    browser.execute_script("jump(1)")
    assert "a GPU 50 %" in browser.find_element("id", "about").text
    press(browser, "c")
    assert browser.execute_script("return [...view.chain.keys()].map(i => i[JOB])") == [1]
    told = browser.execute_script("return describe(...[...view.chain].map(([i, lane]) => [lane, i])[0])")
    assert re.search(r"30 µs: .* a0/0, .* first", told)


def racks() -> tuple[Instance, Plan]:
    """Two racks of two servers of two GPUs; one job behind another on the first GPU, a third elsewhere."""
    model = Model((Segment("s", {"v": 10}, {"v": 20}, 1, 1),))
    servers = tuple(Server(f"a{k}", "v", 2, 100, 1) for k in range(4))
    links = tuple(Link(f"a{k}", (f"a{k}", f"rack{k % 2}"), 1) for k in range(4))
    up = tuple(Link(f"rack{k}", (f"rack{k}", "spine"), 1) for k in range(2))
    cluster = Cluster(servers, ("rack0", "rack1", "spine"), (*links, *up))
    jobs = tuple(Job(name, "m", 1, 1) for name in ("first", "second", "third"))
    places = (("a0/0", 0), ("a0/0", 30), ("a3/1", 0))
    plans = tuple(
        JobPlan(job.name, (gpu,), (Iteration((Block(1, start, start + 30),), ()),))
        for job, (gpu, start) in zip(jobs, places, strict=True)
    )
    return Instance("racks", cluster, {"m": model}, jobs), Plan.of_jobs("racks", "", "feasible", 60, 1, None, plans)


ROWS = "return rows.map(it => it.group ? it.group.name : it.lane.name)"


def test_rows_fold_by_server_and_rack_and_show_one_job_alone(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(picture(*racks())))
    assert browser.execute_script(ROWS)[:8] == ["rack rack0", "a0", "a0/0", "a0/1", "a2", "a2/0", "a2/1", "rack rack1"]
    press(browser, "g")
    assert browser.execute_script(ROWS)[:4] == ["rack rack0", "a0", "a2", "rack rack1"]
    press(browser, "g")
    assert browser.execute_script(ROWS)[:3] == ["rack rack0", "rack rack1", "links"]
    busy = browser.execute_script("return rows[0].group.busy")
    assert busy == pytest.approx(60 / (4 * 60))
    assert browser.execute_script("return Array.from(busyParts(rows[0].group.lanes, 0, 60, 4))") == [0.25] * 4
    browser.execute_script("jump(2)")
    assert "a3/1" in browser.execute_script(ROWS)
    press(browser, "f")
    assert browser.execute_script(ROWS) == ["rack rack1", "a3", "a3/1"]


def test_the_strip_above_moves_the_view(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(picture(*racks())))
    browser.execute_script("clampView(0, 20); draw();")
    box = browser.execute_script(
        "const b = strip.getBoundingClientRect(); return [b.left + left, b.width - left, b.top + 5]"
    )
    browser.execute_script(
        "strip.setPointerCapture = () => {};"
        "strip.dispatchEvent(new PointerEvent('pointerdown', {clientX: arguments[0], clientY: arguments[1]}))",
        box[0] + box[1] * 0.75,
        box[2],
    )
    assert browser.execute_script("return [view.from, view.to]") == pytest.approx([35, 55], abs=0.2)


def test_measuring_snaps_to_blocks(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(picture(*racks())))
    assert browser.execute_script("return snapped(x(30) + 3, yOf(data.lanes[0]))") == 30
    assert browser.execute_script("return snapped(x(15), yOf(data.lanes[0]))") == pytest.approx(15)
    browser.execute_script("view.measure = [0, 30]; say(measured());")
    assert re.findall(r"[\d.]+ (?:µs|%)", said(browser)) == ["30 µs", "0 µs", "30 µs", "25.0 %"]
    press(browser, "m", "Escape")
    assert browser.execute_script("return view.measure") is None


def test_the_picture_as_svg(browser: Chrome, tmp_path: Path) -> None:
    instance, plan = racks()
    evil = '<script>&"'
    jobs = (replace(instance.jobs[0], name=evil), *instance.jobs[1:])
    plan = plan.with_jobs((replace(plan.jobs[0], name=evil), *plan.jobs[1:]))
    show(browser, tmp_path, timeline_html(picture(replace(instance, jobs=jobs), plan)))
    root = ElementTree.fromstring(browser.execute_script("return asSvg()"))
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]
    assert f"{evil} · 1" in texts and any("a0/0" in text for text in texts)
    assert not any(element.tag.endswith("}script") for element in root.iter())


def test_jobs_are_sorted_and_thousands_are_found_by_name(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(picture(*many_blocks(400, 2))))
    assert browser.execute_script("return [document.querySelectorAll('#jobs li').length, rows.length]") == [300, 401]
    assert "100" in browser.find_element("id", "more").text
    browser.find_element("id", "find").send_keys("job39")
    names = browser.execute_script("return [...document.querySelectorAll('#jobs li')].map(it => it.textContent)")
    assert names == ["job39", *(f"job39{k}" for k in range(10))]


def many_blocks(lanes: int, blocks: int) -> tuple[Instance, Plan]:
    model = Model((Segment("s", {"v": 10}, {"v": 20}, 1, 1),))
    cluster = Cluster((Server("a", "v", lanes, 100, 1),))
    jobs = tuple(Job(f"job{k}", "m", 1, blocks) for k in range(lanes))
    plans = tuple(
        JobPlan(job.name, (f"a/{k}",), tuple(Iteration((Block(1, 40 * i, 40 * i + 30),), ()) for i in range(blocks)))
        for k, job in enumerate(jobs)
    )
    return Instance("many", cluster, {"m": model}, jobs), Plan.of_jobs(
        "many", "", "feasible", 40 * blocks - 10, 1, None, plans
    )


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


def test_blocks_of_a_shape_are_shaded_by_kind_and_steps_are_counted_once(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, timeline_html(explained_picture(picture(*pipe()))))
    shades = browser.execute_script("return data.lanes[0].intervals.map(i => shade(data.jobs[0], i))")
    assert len(set(shades)) == 3 and all(0 <= shade < 1 for shade in shades)
    press(browser, "c")
    # The last block is on both GPUs, and one step.
    assert browser.execute_script("return [view.chain.size, view.steps.length]") == [4, 3]
    assert re.findall(r"pipe|\d+ \w+", said(browser)) == ["pipe", "3 steps", "3 µs", "13 µs"]

"""The report of a simulation: what it says, and that it draws in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jigsaw_opt.documents.readers.outages import OutageEvent
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.simulation.engine.outages import Failures, ListedEvents
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import MEASURES, completion_us, summarise
from jigsaw_opt.simulation.results.result import times_of
from jigsaw_opt.views.simulation_report import findings, simulation_html, waits
from tests.simulation.cases import SECOND, job, random_jobs, run, setting
from tests.views.test_html_in_browser import browser, show
from tests.views.test_pages_in_browser import narrow
from tests.views.test_views import embedded

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser", "narrow"]

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def simulated() -> tuple[Setting, SimulationOutcome]:
    made = setting(TraceJob("</script><b>x", 0, "<!--m", 8, 600), *random_jobs(1, 30), restart_s=10)
    return made, run(made, FIFO)


def page_of(made: Setting, outcome: SimulationOutcome) -> str:
    return simulation_html(made, outcome, summarise(made, outcome), "fifo")


def test_jobs_without_a_model_have_a_stated_duration() -> None:
    jobs = TraceJob.lasting("a", 0, 1, 7 * SECOND), TraceJob.lasting("b", 0, 1, 1), TraceJob("c", 0, "bert", 1, 5)
    made = setting(*jobs)
    data = embedded(page_of(made, run(made, FIFO)))
    assert [model["name"] for model in data["models"]] == ["bert", "stated duration"]
    assert [line[1] for line in data["jobs"]] == [1, 1, 0]


def test_a_simulation_that_ends_before_any_job_comes_has_a_page() -> None:
    made = setting(TraceJob("late", 5 * SECOND, "m", 1, 10))
    simulation = Simulation(made.under(FIFO, placement="packed"))
    simulation.run(until_us=0)
    outcome = simulation.close()
    assert not outcome.jobs
    assert "No job has been" in page_of(made, outcome)


def test_gpus_that_are_down_have_a_chart_where_anything_fails(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    assert "GPUs down" not in {chart["name"] for chart in embedded(page_of(made, outcome))["charts"]}
    events = (OutageEvent(200 * SECOND, "server", 1, True), OutageEvent(700 * SECOND, "server", 1, False))
    failing = replace(made, failures=Failures(ListedEvents(events)))
    ended = run(failing, FIFO)
    (chart,) = (one for one in embedded(page_of(failing, ended))["charts"] if one["name"] == "GPUs down")
    assert sum(chart["values"]) / len(chart["values"]) * ended.end_us == pytest.approx(4 * 500 * SECOND, rel=1e-3)


def test_the_charts_are_integrals_of_what_happened(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    data = embedded(page_of(made, outcome))
    charts = {chart["name"]: chart["values"] for chart in data["charts"]}
    bins = len(charts["GPUs in use"])
    held = sum(record.gpu_us for record in outcome.jobs)
    assert sum(charts["GPUs in use"]) / bins * outcome.end_us == pytest.approx(held, rel=1e-4)
    waited = sum(
        (later.time_us - record.time_us) * (record.active - record.running)
        for record, later in zip(outcome.rounds, outcome.rounds[1:], strict=False)
    )
    assert sum(charts["jobs waiting"]) / bins * outcome.end_us == pytest.approx(waited, rel=1e-3)
    assert max(charts["restarts so far"]) == sum(record.restarts for record in outcome.jobs)
    assert data["completion"] == sorted(data["completion"])
    assert len(data["stints"]) == len(outcome.stints)
    page = page_of(made, outcome)
    assert "var uPlot=" in page and "Copyright (c) 2022 Leon Sorokin" in page
    assert not re.search(r"<script[^>]*src|<link|@import|url\(", page)
    assert "</script><b>" not in page and "<!--m" not in page


def test_each_server_has_the_gpu_time_that_is_held_of_it(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    servers: list[Any] = embedded(page_of(made, outcome))["servers"]
    assert [(server["name"], server["gpus"]) for server in servers] == [("s0", 4), ("s1", 4)]
    held = sum(sum(server["values"]) / len(server["values"]) for server in servers) * outcome.end_us
    assert held == pytest.approx(sum(record.gpu_us for record in outcome.jobs), rel=1e-3)
    assert all(0 <= value <= 4 for server in servers for value in server["values"])


def test_the_times_of_a_job_add_up_to_its_completion(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    for record, times in zip(outcome.jobs, times_of(made, outcome), strict=True):
        assert min(times.queued_us, times.running_us, times.paused_us) >= 0
        assert times.completion_us == completion_us(made, record)
    longest = [times.waiting_us for _, times in waits(made, outcome, 5)]
    assert longest == sorted(longest, reverse=True) and len(longest) == 5


def test_sentences_say_which_job_is_late_which_waits_and_which_server_idles() -> None:
    # s0 is held from 0 to 300 s and s1 to 100 s of 300 s; c waits for a and b, and holds 4 GPUs.
    made = setting(job("a", 0, 4, 100), job("b", 0, 4, 100), job("c", 0, 4, 200), round_us=0)
    said = findings(made, run(made, FIFO))
    assert said == [
        "Latest: job c, 5 min after the beginning and 5 min after its submission, because it waited 1.667 min for its"
        " first start, held GPUs for 3.333 min; all its work alone takes 3.333 min.",
        "Longest wait: job c, 1.667 min without GPUs; 33.3 % of the jobs wait at all.",
        "Most unfair: job c, 1.5 times as long as on a fair share.",
        "Idles most: server s1, 66.7 % of its GPU time; that of all servers is 33.3 %.",
    ]
    down = replace(made, failures=Failures(ListedEvents((OutageEvent(200 * SECOND, "server", 1, True),))))
    assert findings(down, run(down, FIFO))[-1].startswith("Idles most: server s1, 33.3 % of its GPU time")


def test_each_measure_has_a_name_a_unit_and_a_meaning(simulated: tuple[Setting, SimulationOutcome]) -> None:
    assert {measure.unit for measure in MEASURES.values()} == {"", "h", "ms", "share"}
    assert all(measure.name and measure.meaning for measure in MEASURES.values())
    summary = embedded(page_of(*simulated))["summary"]
    assert summary[0] == ["jobs", "", "submitted in all", 31]


def test_it_draws_and_answers(browser: Chrome, tmp_path: Path, simulated: tuple[Setting, SimulationOutcome]) -> None:
    show(browser, tmp_path, page_of(*simulated))
    assert browser.execute_script("return document.querySelectorAll('canvas').length") == 6
    area = browser.execute_script("const a = timeline.getBoundingClientRect(); return [a.left, a.top, a.width]")
    browser.execute_script(
        "timeline.dispatchEvent(new MouseEvent('mousemove', {clientX: arguments[0], clientY: arguments[1]}))",
        area[0] + area[2] * 100 * SECOND / simulated[1].end_us,
        area[1] + 3,
    )
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert tip.startswith("</script><b>x (<!--m)\n") and "submitted 0 h" in tip
    assert "\nwaited 0 h, " in tip and "8 GPUs from" in tip
    assert browser.execute_script("return document.querySelectorAll('#waits tbody tr').length") == 10
    area = browser.execute_script("const a = servers.getBoundingClientRect(); return [a.left, a.top, a.width]")
    browser.execute_script(
        "servers.dispatchEvent(new MouseEvent('mousemove', {clientX: arguments[0], clientY: arguments[1]}))",
        area[0] + 92,
        area[1] + 3,
    )
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert re.findall(r"s0|4 GPUs|\b4 of|0 h", tip)[:4] == ["s0", "4 of", "4 GPUs", "0 h"]


def test_a_narrow_window_shows_a_long_name_of_a_policy(
    narrow: Chrome, tmp_path: Path, simulated: tuple[Setting, SimulationOutcome]
) -> None:
    made, outcome = simulated
    words = "multifactor:kind=conservative:reserve=servers:placement=consolidated:default_limit=24"
    show(narrow, tmp_path, simulation_html(made, outcome, summarise(made, outcome), words))
    assert narrow.execute_script("return document.documentElement.scrollWidth") == 400

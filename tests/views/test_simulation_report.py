"""The report of a simulation: what it says, and that it draws in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.simulation.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.outages import Failures, ListedEvents, OutageEvent
from jigsaw_opt.simulation.policies.fifo import FIFO
from jigsaw_opt.simulation.records import SimulationOutcome
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.views.measures import MEASURES
from jigsaw_opt.views.simulation_report import simulation_html
from tests.simulation.cases import SECOND, random_jobs, run, setting
from tests.views.test_html_in_browser import browser, show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def simulated() -> tuple[Setting, SimulationOutcome]:
    made = setting(TraceJob("</script><b>x", 0, "<!--m", 8, 600), *random_jobs(1, 30), restart_s=10)
    return made, run(made, FIFO)


def page_of(made: Setting, outcome: SimulationOutcome) -> str:
    return simulation_html(made, outcome, summarise(made, outcome), "fifo")


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, object] = json.loads(found[1])
    return data


def test_gpus_that_are_down_have_a_chart_where_anything_fails(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    assert "GPUs down" not in {chart["name"] for chart in data_of(page_of(made, outcome))["charts"]}  # type: ignore[attr-defined]
    events = (OutageEvent(200 * SECOND, "server", 1, True), OutageEvent(700 * SECOND, "server", 1, False))
    failing = replace(made, failures=Failures(ListedEvents(events)))
    ended = run(failing, FIFO)
    (chart,) = (one for one in data_of(page_of(failing, ended))["charts"] if one["name"] == "GPUs down")  # type: ignore[attr-defined]
    assert sum(chart["values"]) / len(chart["values"]) * ended.end_us == pytest.approx(4 * 500 * SECOND, rel=1e-3)


def test_the_charts_are_integrals_of_what_happened(simulated: tuple[Setting, SimulationOutcome]) -> None:
    made, outcome = simulated
    data = data_of(page_of(made, outcome))
    charts = {chart["name"]: chart["values"] for chart in data["charts"]}  # type: ignore[attr-defined]
    bins = len(charts["GPUs in use"])
    held = sum(record.gpu_us for record in outcome.jobs)
    assert sum(charts["GPUs in use"]) / bins * outcome.end_us == pytest.approx(held, rel=1e-4)
    waited = sum(
        (later.time_us - record.time_us) * (record.active - record.running)
        for record, later in zip(outcome.rounds, outcome.rounds[1:], strict=False)
    )
    assert sum(charts["jobs waiting"]) / bins * outcome.end_us == pytest.approx(waited, rel=1e-3)
    assert max(charts["starts on other GPUs"]) == len(outcome.jobs)
    assert data["completion"] == sorted(data["completion"])  # type: ignore[type-var]
    assert len(data["stints"]) == len(outcome.stints)  # type: ignore[arg-type]


def test_each_measure_has_a_name_a_unit_and_a_meaning(simulated: tuple[Setting, SimulationOutcome]) -> None:
    assert list(MEASURES) == [field.name for field in fields(SimulationSummary)]
    assert {measure.unit for measure in MEASURES.values()} == {"", "h", "ms", "share"}
    assert all(measure.name and measure.meaning for measure in MEASURES.values())
    summary = data_of(page_of(*simulated))["summary"]
    assert summary[0] == ["jobs", "", "submitted in all", 31]  # type: ignore[index]


def test_the_charting_library_is_in_the_page_with_its_licence(simulated: tuple[Setting, SimulationOutcome]) -> None:
    page = page_of(*simulated)
    assert "var uPlot=" in page and "Copyright (c) 2022 Leon Sorokin" in page
    assert not re.search(r"<script[^>]*src|<link|@import|url\(", page)


def test_names_are_never_markup(simulated: tuple[Setting, SimulationOutcome]) -> None:
    page = page_of(*simulated)
    assert "</script><b>" not in page
    assert "<!--m" not in page


def test_it_draws_and_answers(browser: Chrome, tmp_path: Path, simulated: tuple[Setting, SimulationOutcome]) -> None:
    show(browser, tmp_path, page_of(*simulated))
    assert browser.execute_script("return document.querySelectorAll('canvas').length") == 5
    area = browser.execute_script("const a = timeline.getBoundingClientRect(); return [a.left, a.top, a.width]")
    browser.execute_script(
        "timeline.dispatchEvent(new MouseEvent('mousemove', {clientX: arguments[0], clientY: arguments[1]}))",
        area[0] + area[2] * 100 * SECOND / simulated[1].end_us,
        area[1] + 3,
    )
    tip = browser.execute_script("return document.getElementById('tip').textContent")
    assert tip.startswith("</script><b>x (<!--m)\nsubmitted 0 h")
    assert "on 8 GPUs from" in tip

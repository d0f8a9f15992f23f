"""Pages of failures and comparisons in a browser: what they say, and what a narrow window shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jigsaw_opt.views.sweep_page import sweep_html
from tests.views.test_html_in_browser import browser, show

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

pytestmark = pytest.mark.xdist_group("browser")

CELLS = "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
SEEN = """
const table = document.querySelector(arguments[0]), edge = table.parentElement.getBoundingClientRect().right;
const cells = [...table.tBodies[0].rows[0].cells].filter(c => c.getClientRects().length);
const inside = cells.filter(c => c.getBoundingClientRect().right <= edge + 1);
return [innerWidth, document.documentElement.scrollWidth, inside.length];
"""


@pytest.fixture
def narrow(browser: Chrome) -> Iterator[Chrome]:
    places = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", places)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def runs(policy: str, values: list[float]) -> list[dict[str, Any]]:
    return [
        {"workload": "w", "policy": policy, "seed": seed, "error": None, "mean_completion_h": value}
        for seed, value in enumerate(values)
    ]


def told(browser: Chrome) -> dict[str, list[str]]:
    return {cells[0]: [cell.replace("\n", ", ") for cell in cells[1:3]] for cells in browser.execute_script(CELLS, "")}


def test_an_interval_of_no_width_proves_nothing(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, sweep_html([*runs("a", [2, 2]), *runs("b", [3, 3])]))
    assert told(browser) == {
        "a": ["2 h, all runs alike", "best"],
        "b": ["3 h, all runs alike", "+50.0 %, all runs alike"],
    }
    show(browser, tmp_path, sweep_html([*runs("a", [2]), *runs("b", [3])]))
    assert told(browser)["b"] == ["3 h, one run, no interval", "+50.0 %, one run, no interval"]
    show(browser, tmp_path, sweep_html([*runs("a", [2, 3, 2]), *runs("b", [3, 4, 3.2]), *runs("c", [1, 9, 1])]))
    assert [it[1] for it in told(browser).values()] == ["best", "+45.7 %, beyond chance", "+57.1 %, may be chance"]


def test_a_narrow_window_shows_figures_and_verdicts_of_a_sweep(narrow: Chrome, tmp_path: Path) -> None:
    show(narrow, tmp_path, sweep_html([*runs("las:placement=consolidated", [2, 2.5]), *runs("b", [3, 3])]))
    assert narrow.execute_script(SEEN, "#workloads table") == [400, 400, 3]

"""Pages of failures and comparisons in a browser: what they say, and what a narrow window shows of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jigsaw_opt.solvers.failures import Failure
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.views.bench_page import bench_html
from jigsaw_opt.views.failures_page import failures_html
from jigsaw_opt.views.sweep_page import advice_html, sweep_html
from tests.solvers.test_failures import chained
from tests.views.test_bench_page import runs as bench_runs
from tests.views.test_failures_page import effect
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
    assert [each[1] for each in told(browser).values()] == ["best", "+45.7 %, beyond chance", "+57.1 %, may be chance"]


def advice(*changes: MeanInterval) -> str:
    """Advice on a policy of each of some changes from today's, `fifo`."""
    measures = {"mean_completion_h": MeanInterval(2.0, 0.0), "makespan_h": MeanInterval(9.0, 1.0)}
    figures = {key: mean.plain() for key, mean in measures.items()}
    policy = {"seeds": [0, 1], "error": None, "figures": figures}
    others = [
        {**policy, "policy": f"las:threshold={k}", "change_percent": {"mean_completion_h": change.plain()}}
        for k, change in enumerate(changes)
    ]
    document = {
        "headline": "las",
        "who_loses": ["Restarts: las stops or moves jobs 2 times, fifo 0 times."],
        "measure": "mean_completion_h",
        "today": "fifo",
        "best": "las",
        "runs": 1,
        "finished": 1,
        "settings": [],
        "changes": [],
        "left_out": {},
        "assumed": {"cluster": "1 GPU"},
        "policies": [*others, {**policy, "policy": "fifo", "change_percent": {}}],
        "request": {"workload": "w"},
    }
    return advice_html(document)


def test_advice_says_how_sure_a_change_is(browser: Chrome, tmp_path: Path) -> None:
    sure, doubtful = MeanInterval(-9.0, 2.0), MeanInterval(-1.0, 2.0)
    show(browser, tmp_path, advice(sure, doubtful, MeanInterval(-5.0, 0.0), MeanInterval.of([3.0])))
    assert browser.execute_script("return document.getElementById('loses').textContent").startswith("Restarts: las")
    verdicts = [cells[2].split("\n") for cells in browser.execute_script(CELLS, "#policies")]
    assert [[text for text in told if "%" in text] for told in verdicts] == [
        ["−9.0 %", "−11.0 % … −7.0 %"],
        ["−1.0 %", "−3.0 % … +1.0 %"],
        ["−5.0 %"],
        ["+3.0 %"],
        [],
    ]
    assert len({told[-1] for told in verdicts}) == 5
    assert re.findall(r"\d+", browser.find_element("id", "about").text) == ["1", "1", "1"]
    assert "Tiresias" in browser.find_element("id", "described").text


def test_a_narrow_window_shows_figures_and_verdicts(narrow: Chrome, tmp_path: Path) -> None:
    compared = sweep_html([*runs("las:placement=consolidated", [2, 2.5]), *runs("b", [3, 3])])
    advised = advice(MeanInterval(-9.0, 2.0))
    for page, table in ((compared, "#workloads table"), (advised, "#policies")):
        show(narrow, tmp_path, page)
        width, whole, inside = narrow.execute_script(SEEN, table)
        assert width == whole == 400 and inside >= 3


def test_a_narrow_window_shows_what_a_failure_does(narrow: Chrome, tmp_path: Path) -> None:
    found = [effect("server", "a", ("j",), None), effect("link", "fast", (), 16)]
    show(narrow, tmp_path, failures_html(chained(), 12, list(map(Failure, found))))
    assert narrow.execute_script(SEEN, ".table table")[2] >= 3
    first, second = narrow.execute_script(CELLS, ".table")
    assert first[:3] == ["server a", "1 of 1 job stops: j", "no job is left"]
    assert second[:3] == ["link fast", "no job is touched", "16 µs (+33.3 %)"]
    assert "server a" in narrow.find_element("id", "worst").text


def test_a_narrow_window_shows_which_solver_is_best(narrow: Chrome, tmp_path: Path) -> None:
    show(narrow, tmp_path, bench_html([*bench_runs("greedy", [110] * 8), *bench_runs("cpsat", [100] * 8)]))
    width, whole, inside = narrow.execute_script(SEEN, "#cells table")
    assert width == whole == 400 and inside >= 3
    heads = narrow.execute_script(
        "return [...document.querySelectorAll('#cells th')].map(it => [it.innerText, it.title])"
    )
    assert [name for name, _ in heads[:4]] == ["solver", "set", "objective ratio", "mean gap"]
    assert all(meaning for _, meaning in heads[2:])
    assert narrow.find_element("id", "verdicts").text.startswith("By the objective after 10 s, cpsat is best")
    assert "list scheduling" in narrow.find_element("id", "solvers").text

"""The page of a sweep: means, intervals, failed policies, and names that stay text."""

from __future__ import annotations

import re
from typing import Any

from jigsaw_opt.scheduling.policy import find
from jigsaw_opt.views.sweep_page import sweep_html
from tests.views.test_views import embedded

EVIL = "</script><script>alert(1)</script>"


def row(policy: str, seed: int, **more: Any) -> dict[str, Any]:
    return {"workload": EVIL, "policy": policy, "seed": seed, "error": None, **more}


def test_means_and_intervals() -> None:
    rows = [row("las", seed, mean_completion_h=float(seed), utilisation=0.5) for seed in (1, 2, 3)]
    rows += [row("fifo", 1, mean_completion_h=4.0, utilisation=None), {**row("bad", 1), "error": EVIL}]
    page = sweep_html(rows)
    assert EVIL not in page and "<script>alert" not in page
    data = embedded(page)
    (workload,) = data["workloads"]
    las, fifo, bad = workload["policies"]
    mean = las["figures"]["mean_completion_h"]
    assert mean["mean"] == 2 and mean["low"] < 0 and mean["best"] and mean["change"] is None
    # Only the seed that both have is compared.
    assert fifo["figures"]["mean_completion_h"] == {
        "mean": 4.0,
        "low": None,
        "high": None,
        "best": False,
        "change": {"mean": 300.0, "low": None, "high": None},
    }
    assert (bad["figures"], bad["error"]) == ({}, EVIL)
    assert list(data["measures"]) == ["mean_completion_h", "utilisation"]
    assert (data["measures"]["mean_completion_h"]["better"], data["measures"]["utilisation"]["better"]) == (
        "less",
        "more",
    )


def test_policies_and_what_was_assumed_are_told() -> None:
    rows = [row("las:threshold=8", 0, makespan_h=1.0), row("nobody's", 0, makespan_h=1.0)]
    data = embedded(sweep_html(rows, [("round", EVIL)]))
    assert data["policies"] == [["las", find("las").display_name]]
    assert data["assumed"] == [["round", EVIL]] and re.findall(r"\d+ \w+", data["about"]) == [
        "2 simulations",
        "1 workload",
    ]


def verdicts_of(*rows: dict[str, Any]) -> list[str]:
    verdicts: list[str] = embedded(sweep_html(rows))["verdicts"]
    return verdicts


def test_a_sentence_tells_the_best_policy_by_how_much_and_how_sure() -> None:
    clear = [row("fifo", seed, mean_completion_h=2.0 + seed, makespan_h=1) for seed in (0, 1)]
    clear += [row("srtf", seed, mean_completion_h=1.0 + seed, makespan_h=9) for seed in (0, 1)]
    clear += [row("las", seed, mean_completion_h=5.0, makespan_h=9) for seed in (0, 1)]
    assert verdicts_of(*clear) == ["srtf has the best mean completion, 1.5 h; the next, fifo, has 2.5 h, +66.7 %."]
    doubtful = [row("srtf", seed, mean_completion_h=1.0) for seed in (0, 1)]
    doubtful += [row("fifo", seed, mean_completion_h=1.0 + seed) for seed in (0, 1)]
    (told,) = verdicts_of(*doubtful)
    assert told.startswith("srtf has the best mean completion, 1 h; the next, fifo, has 1.5 h, +50.0 % (95 % between -")
    assert told.endswith("), which may be chance.")
    close = [row("srtf", 0, cluster_efficiency=0.5), row("fifo", 0, cluster_efficiency=0.4999)]
    assert verdicts_of(*close) == ["srtf has the best cluster efficiency, 0.5; the next, fifo, has 0.4999, -0.02 %."]


def test_policies_that_are_alike_or_alone_are_told_as_such() -> None:
    alike = [row(policy, 0, makespan_h=2.0) for policy in ("fifo", "las")]
    assert verdicts_of(*alike) == ["fifo, las have the same makespan, 2 h."]
    assert verdicts_of(row("fifo", 0, makespan_h=2.0)) == ["fifo has no rival here: makespan, 2 h."]
    other = {**row("fifo", 0, makespan_h=3.0), "workload": "week"}
    assert verdicts_of(*alike, row("sjf", 0, makespan_h=4.0), other) == [
        f"{EVIL}: fifo, las have the best makespan, 2 h; the next, sjf, has 4 h, +100.0 %.",
        "week: fifo has no rival here: makespan, 3 h.",
    ]
    assert verdicts_of({**row("bad", 0), "error": "failed"}) == []

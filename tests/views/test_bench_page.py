"""The page of measured solvers: profile, gap over time, failed runs, and names that stay text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from jigsaw_opt.sweeps.bench.against import against
from jigsaw_opt.views.bench_page import bench_html

EVIL = "</script><script>alert(1)</script>"


def row(solver: str, seed: int, **more: Any) -> dict[str, Any]:
    known = {"set": "s", "instance": EVIL, "instance_sha256": "x", "time_limit": 10.0, "error": None, "seconds": 10.0}
    return {"key": f"{solver} {seed}", "solver": solver, "seed": seed, **known, **more}


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_profile_and_curve() -> None:
    steps = [[1.0, 100, 50], [2.0, 100, 90]]
    good = row("a", 1, status="feasible", objective=100, gap=0.1, trajectory=steps, primal_dual_integral=2.3)
    page = bench_html(
        [good, row("a", 2, error=EVIL), row("b", 1, status="optimal", objective=90, gap=0.0, seconds=0.5)]
    )
    assert EVIL not in page and "<script>alert" not in page
    data = data_of(page)
    first, second = data["lines"]
    assert data["gaps"] == [0.01, 10.0, 100.0]
    assert (first["profile"], second["profile"]) == ([0, 50, 50], [100, 100, 100])
    # The failed run counts as a gap of 100 % all along.
    at = {round(moment, 2): gap for moment, gap in zip(data["moments"], first["curve"], strict=True)}
    assert first["curve"][0] == 100 and first["curve"][-1] == pytest.approx(55)
    assert any(gap == 75 for moment, gap in at.items() if 1 <= moment < 2)
    assert (second["curve"][0], second["curve"][-1]) == (100, 0)
    assert data["instances"] == [{"name": EVIL, "gaps": [0.55, 0.0]}]
    assert [cell["line"] for cell in data["cells"]] == ["a 10 s", "b 10 s"]


def test_older_runs_have_a_section() -> None:
    old = {f"a {k}": row("a", k, objective=100, primal_dual_integral=1.0, instance_sha256=str(k)) for k in range(9)}
    new = [{**it, "objective": 120} for it in old.values()]
    told = data_of(bench_html(new, (EVIL, against(old, new))))["against"]
    assert (told["folder"], told["pairs"], [it["verdict"] for it in told["changes"]]) == (
        EVIL,
        9,
        ["worse", "no clear change"],
    )
    assert [(it["line"], it["measure"]) for it in told["changes"]] == [("a 10 s", "objective"), ("a 10 s", "gap × s")]
    assert data_of(bench_html(new))["against"] is None


def test_no_rows() -> None:
    assert data_of(bench_html([]))["runs"] == 0

"""The page of measured solvers: profile, gap over time, failed runs, and names that stay text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jigsaw_opt.sweeps.bench.against import against
from jigsaw_opt.views.bench_page import bench_html, verdicts
from tests.views.test_views import embedded

EVIL = "</script><script>alert(1)</script>"


def row(solver: str, seed: int, **more: Any) -> dict[str, Any]:
    known = {"set": "s", "instance": EVIL, "instance_sha256": "x", "time_limit": 10.0, "error": None, "seconds": 10.0}
    return {"key": f"{solver} {seed}", "solver": solver, "seed": seed, **known, **more}


def test_profile_and_curve() -> None:
    steps = [[1.0, 100, 50], [2.0, 100, 90]]
    good = row("a", 1, status="feasible", objective=100, gap=0.1, trajectory=steps, primal_dual_integral=2.3)
    page = bench_html(
        [good, row("a", 2, error=EVIL), row("b", 1, status="optimal", objective=90, gap=0.0, seconds=0.5)]
    )
    assert EVIL not in page and "<script>alert" not in page
    data = embedded(page)
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
    new = [{**each, "objective": 120} for each in old.values()]
    told = embedded(bench_html(new, (EVIL, against(old, new))))["against"]
    assert (told["folder"], told["pairs"], [change["verdict"] for change in told["changes"]]) == (
        EVIL,
        9,
        ["worse", "no clear change"],
    )
    assert [(change["line"], change["measure"]) for change in told["changes"]] == [
        ("a 10 s", "objective"),
        ("a 10 s", "gap × s"),
    ]
    assert embedded(bench_html(new))["against"] is None and embedded(bench_html([]))["runs"] == 0


def runs(solver: str, objectives: list[int | None], **more: Any) -> list[dict[str, Any]]:
    gap = {"gap": 0.1, "primal_dual_integral": 1.0}
    return [
        row(solver, 1, key=f"{solver} {k}", instance_sha256=str(k), objective=objective, **{**gap, **more})
        for k, objective in enumerate(objectives)
    ]


def test_the_best_solver_is_said_with_what_chance_would_do() -> None:
    rows = [*runs("a", [110] * 10), *runs("b", [100] * 10), *runs("c", [101, *[100] * 9])]
    first, second = verdicts(rows)
    assert first == (
        "By the objective after 10 s, b is best over 10 instances. It has 0.0995 % less than c (95 % interval −0.298 to"
        " 0 %): better on 1, worse on 0, equal on 9, which may be chance (sign test, p = 1). It has 9.09 % less than a:"
        " better on 10, worse on 0, equal on 0, which is beyond chance (sign test, p = 0.0039)."
    )
    assert second == "By the gap over time, gap × s, after 10 s, a and b and c are alike on all of 10 instances."
    assert embedded(bench_html(rows))["verdicts"] == [first, second]


def test_a_solver_without_plans_is_not_best() -> None:
    (first, second, failed) = verdicts(
        [*runs("none", [None] * 8, primal_dual_integral=None, error="died"), *runs("slow", [100] * 8)]
    )
    assert "slow is best" in first and re.findall(r"\d+ s\b|\d+ instances", first)[:2] == ["10 s", "8 instances"]
    assert "p = 0.0078" in first and "slow is best" in second
    assert failed.startswith("8 runs failed")


def test_certified_optima_are_counted_among_the_optima() -> None:
    optimal = runs("a", [100] * 3, status="optimal")
    *_, told = verdicts([*optimal, *runs("b", [100], status="optimal", certified=True), *runs("c", [100])])
    assert told == "1 of 4 runs with an optimal plan are certified optimal."


def test_one_solver_has_no_rival() -> None:
    assert [*verdicts(runs("a", [1]))] == [
        "a 10 s has no rival here: 1 run of 1 instance, with a mean proven gap of 10 %."
    ]

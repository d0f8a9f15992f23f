"""Paired measurements: sources, turns, rows that are kept, statistics, tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import versions
from paired.arms import Arm, Tree
from paired.cases import Case, cases, named
from paired.comparison import compared
from paired.runs import run

from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import UsageError

PROJECT = """
[project]
name = "jigsaw-opt"
[project.entry-points."jigsaw_opt.solvers"]
auto = "jigsaw_opt.there:AUTO"
"""
PACKAGE = """
from types import SimpleNamespace
from importlib.metadata import entry_points
def load_instance(path): return path
def Options(**options): return options
def solve(instance, solver, options):
    assert [point.value for point in entry_points(group="jigsaw_opt.solvers")] == ["jigsaw_opt.there:AUTO"]
    if {fails}: raise SystemExit("out of order")
    moves = [SimpleNamespace(name="shake", calls=1), SimpleNamespace(name="rest", calls=0)]
    return SimpleNamespace(status="feasible", objective={objective} + options["seed"], bound=80, gap=0.2,
        bound_reason="reason", moves=moves)
"""


def tree(folder: Path, objective: int, fails: bool = False) -> Tree:
    """A tree whose solver knows its answers beforehand."""
    (folder / "jigsaw_opt").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "jigsaw_opt" / "__init__.py").write_text(PACKAGE.format(objective=objective, fails=fails))
    return Tree.at(folder)


def two_cases(folder: Path, sources: tuple[str, ...] = ("tiny/000",), seeds: tuple[int, ...] = (0, 1)) -> list[Case]:
    return cases(
        sources, folder, solver="auto", seeds=seeds, time_limits=[1.0], work_limits=[], workers=1, most_gpus=64
    )


def row(
    objective: int | None, bound: int, instance: str = "a", seed: int = 0, error: str | None = None
) -> dict[str, Any]:
    gap = None if objective is None else (objective - bound) / objective
    answer = {"status": "feasible", "objective": objective, "bound": bound, "gap": gap, "error": error}
    labels = {"group": "g", "horizon": "finite", "limit": "1 s", "instance_sha256": instance, "seed": seed}
    return {**labels, **answer, "seconds": 2.0, "cpu_seconds": 3.0}


def test_sources_are_sets_instances_and_ranges_of_seeds() -> None:
    assert len(list(named("tiny"))) == 72
    assert [(group, instance.name) for group, instance in named("rack/plain")] == [("rack", "rack-plain")]
    drawn = list(named("crowded:1008-1010:servers=1"))
    names = [f"crowded-{each}" for each in ("makespan-1008", "weighted-1009", "cyclic-1010")]
    assert [instance.name for _, instance in drawn] == names
    assert {(group, len(instance.cluster.servers)) for group, instance in drawn} == {("crowded", 1)}


def test_instances_are_written_once_and_large_ones_left_out(tmp_path: Path) -> None:
    found = two_cases(tmp_path, ("tiny/000", "pod/plain"))
    assert [(case.instance.name, case.seed) for case in found] == [("tiny-000", 0), ("tiny-000", 1)]
    assert load_instance(found[0].document) == found[0].instance
    assert len(list(tmp_path.iterdir())) == 1


def test_every_tree_is_run_with_its_own_code_and_its_own_entry_points(tmp_path: Path) -> None:
    arms = [Arm("old", tree(tmp_path / "old", 110)), Arm("new", tree(tmp_path / "new", 100))]
    said: list[str] = []
    pairs = run(two_cases(tmp_path / "out"), arms, tmp_path / "out", said.append)[arms[1]]
    assert [(old["objective"], new["objective"]) for old, new in pairs] == [(110, 100), (111, 101)]
    assert len(said) == 2
    lines = list(versions.table(pairs))
    assert len(lines) == 3
    assert "-9.05 ± 0.06 %" in lines[2]
    assert "1 / 0" in lines[2]


def test_trees_take_turns_and_rows_are_kept(tmp_path: Path) -> None:
    arms = [Arm("old", tree(tmp_path / "old", 110)), Arm("new", tree(tmp_path / "new", 100))]
    out = tmp_path / "out"
    found = two_cases(out)
    run(found[:1], arms, out, str)
    first = (out / "rows.jsonl").read_text()
    run(found, arms, out, str)
    rows = (out / "rows.jsonl").read_text()
    assert rows.startswith(first)
    assert [line.split('"arm": "')[1][:3] for line in rows.splitlines()] == ["old", "new", "new", "old"]


def test_a_solve_that_fails_is_a_row_and_counts_as_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory with jigsaw_opt in it"):
        Tree.at(tmp_path)
    arms = [Arm("old", tree(tmp_path / "old", 110)), Arm("new", tree(tmp_path / "new", 1, fails=True))]
    pairs = run(two_cases(tmp_path / "out"), arms, tmp_path / "out", str)[arms[1]]
    assert {new["error"] for _, new in pairs} == {"out of order"}
    assert compared(pairs) is None
    assert " all " in list(versions.table(pairs))[2]


def test_changes_are_means_over_instances_of_means_over_seeds() -> None:
    pairs = [
        (row(100, 80), row(110, 80)),
        (row(100, 80, seed=1), row(120, 80, seed=1)),
        (row(200, 50, "b"), row(190, 55, "b")),
    ]
    it = compared(pairs)
    assert it is not None
    assert (it.instances, it.runs, it.errors) == (2, 3, (0, 0))
    assert it.objective.mean == pytest.approx((0.15 - 0.05) / 2)
    assert it.objective.spread == pytest.approx(abs(0.2 - 0.025) / 2**0.5)
    assert (it.objective.less, it.objective.more, it.objective.p) == (1, 1, 1.0)
    assert (it.bound.mean, it.bound.less, it.bound.more) == (pytest.approx(0.05), 0, 1)


def test_a_lost_plan_counts_as_one_twice_as_bad_and_failed_pairs_not_at_all() -> None:
    lost: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [(row(100, 80), row(None, 80))]
    it = compared([*lost, (row(100, 80, "b"), row(100, 80, "b", error="died"))])
    assert it is not None
    assert (it.objective.mean, it.objective.more, it.errors, it.runs) == (1.0, 1, (0, 1), 1)
    assert it.mean_gap == (pytest.approx(0.2), 1.0)


def test_a_verdict_names_what_is_worse_and_what_chance_would_do() -> None:
    worse = [(row(100, 80, f"{k}"), row(102, 80, f"{k}")) for k in range(6)]
    found = versions.verdicts(worse)
    assert list(found.items()) == [
        ("g, finite, 1 s: the objectives are worse by 2.0%.", True),
        ("g, finite, 1 s: the bounds are equal within 0.3%.", False),
    ]
    chance = [(row(100, 80, "a"), row(99, 80, "a")), (row(100, 80, "b"), row(103, 80, "b"))]
    assert list(versions.verdicts(chance).values()) == [False, False]
    assert "chance would do as much" in next(iter(versions.verdicts(chance)))
    lost = [(row(100, 80), row(None, 80, error="out of order"))]
    assert list(versions.verdicts(lost).values()) == [True]

"""What a run says before it begins: of models whose times nobody measured, and of levels below the deepest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from replayed import instance, written

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.executor import run_plan
from jigsaw_opt.instances import load
from jigsaw_opt.problem.depth import chosen_depth
from jigsaw_opt.solvers.solve import solve


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "server/plain",
            "warning: estimated, not measured, are the times of {}; jigsaw profile measures them\n",
        ),
        ("tiny/000", ""),
    ],
)
def test_a_run_warns_of_estimated_models_in_one_line(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = load(name)
    plan = solve(instance, "greedy").plan
    assert plan is not None
    save_plan(plan, tmp_path / "plan.json")
    monkeypatch.setattr(run_plan, "run_plan", lambda request: None)
    assert main(["run", name, str(tmp_path / "plan.json")]) == 0
    said = [line for line in capsys.readouterr().err.splitlines(keepends=True) if line.startswith("warning")]
    assert "".join(said) == told.format(", ".join(sorted({job.model for job in instance.data_parallel})))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("full", ""),
        ("staircase", "levels below the deepest of job a, b: workers stop backward passes early, so accuracy may fall"),
    ],
)
def test_a_run_with_levels_below_the_deepest_says_once_what_it_may_cost(
    rule: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = instance()
    jobs = tuple(replace(job, depth=chosen_depth(rule, 2, 3, 2)) for job in problem.data_parallel)
    source, plan = written(tmp_path, replace(problem, jobs=jobs))
    monkeypatch.setattr(run_plan, "run_plan", lambda request: None)
    assert main(["run", str(source), str(plan)]) == 0
    assert capsys.readouterr().err == (f"{told}; see docs/training-loop.md\n" if told else "")


def test_so_does_a_phased_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = instance()
    long = replace(problem, jobs=tuple(replace(job, iterations=50) for job in problem.data_parallel))
    save_instance(long, tmp_path / "i.json")
    assert main(["solve", str(tmp_path / "i.json"), "--phased", "-o", str(tmp_path / "p.json"), "-q"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(run_plan, "run_plan", lambda request: None)
    assert main(["run", str(tmp_path / "i.json"), str(tmp_path / "p.json")]) == 0
    assert capsys.readouterr().err.startswith("levels below the deepest of job a, b: workers stop")

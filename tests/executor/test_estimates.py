"""A run of models whose times nobody measured says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_plan
from jigsaw_opt.executor import run_plan
from jigsaw_opt.instances import load
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
    assert capsys.readouterr().err == told.format(", ".join(sorted({job.model for job in instance.data_parallel})))

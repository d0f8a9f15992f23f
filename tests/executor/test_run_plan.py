"""One call carries a plan out; what is wrong with its request, and what to know first, is told before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from replayed import instance, written

from jigsaw_opt import InvalidInputError, ReplayRequest, UsageError, run_plan, solve
from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_plan
from jigsaw_opt.errors import CheckFailedError
from jigsaw_opt.instances import load
from jigsaw_opt.problem.depth import chosen_depth


def request() -> ReplayRequest:
    problem = instance()
    plan = solve(problem, "greedy").plan
    assert plan is not None
    return ReplayRequest(problem, plan, warm_up=0)


def test_everything_out_of_range_is_told_at_once() -> None:
    asked, wrong = request(), {"passes": 0, "threads": 0, "warm_up": -1, "every": 0, "seed": -1, "backend": "nccl"}
    with pytest.raises(UsageError) as caught:
        replace(asked, learning_rate=-1.0, **wrong)
    assert len(caught.value.args) == 8
    for part in ("carried out is at least 1", "learning rate", "need a folder", "device cuda"):
        assert part in str(caught.value)


def test_a_wrong_plan_and_a_model_that_cannot_be_built_are_refused(tmp_path: Path) -> None:
    asked = request()
    with pytest.raises(CheckFailedError, match="wrong in"):
        run_plan(replace(asked, plan=replace(asked.plan, objective=1)))
    models = {name: replace(model, executor=None) for name, model in asked.instance.models.items()}
    unbuilt = replace(asked.instance, models=models)
    plan = solve(unbuilt, "greedy").plan
    assert plan is not None
    with pytest.raises(InvalidInputError, match="executor"):
        run_plan(replace(asked, instance=unbuilt, plan=plan))


def test_a_run_warns_of_estimated_models_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = load("server/plain")
    plan = solve(instance, "greedy").plan
    assert plan is not None
    save_plan(plan, tmp_path / "plan.json")
    monkeypatch.setattr("jigsaw_opt.executor.replay.launch.replay", lambda *_: None)
    assert main(["run", "server/plain", str(tmp_path / "plan.json")]) == 0
    [said] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    models = ", ".join(sorted({job.model for job in instance.data_parallel}))
    assert said == f"warning: estimated, not measured, are the times of {models}; jigsaw profile measures them"


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
    monkeypatch.setattr("jigsaw_opt.executor.replay.launch.replay", lambda *_: None)
    assert main(["run", str(source), str(plan)]) == 0
    assert capsys.readouterr().err == (f"{told}; see docs/training-loop.md\n" if told else "")

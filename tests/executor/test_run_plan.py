"""One call carries a plan out; what is wrong with its request is told before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt import InvalidInputError, ReplayRequest, UsageError, run_plan, solve
from jigsaw_opt.errors import CheckFailedError

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from replayed import instance


def request() -> ReplayRequest:
    problem = instance()
    plan = solve(problem, "greedy").plan
    assert plan is not None
    return ReplayRequest(problem, plan, warm_up=0)


def test_a_plan_is_carried_out_and_measured() -> None:
    asked = request()
    replay = run_plan(asked)
    assert replay is not None
    assert [job.name for job in replay.timeline.jobs] == ["a", "b", "c"]
    assert replay.summary.predicted_us == asked.plan.objective


def test_everything_out_of_range_is_told_at_once() -> None:
    wrong = replace(
        request(), passes=0, threads=0, warm_up=-1, every=0, seed=-1, minutes=0.0, options={"lr": -1.0}, backend="nccl"
    )
    with pytest.raises(UsageError) as caught:
        run_plan(wrong)
    assert len(caught.value.args) == 10
    for part in ("carried out is at least 1", "learning rate", "exactly one", "need a folder", "device cuda"):
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

"""The comparison of two trees by the hashes of their plans."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import equal_plans
import pytest

from jigsaw_opt import Options, instances, solve
from jigsaw_opt.errors import CheckFailedError


def test_a_hash_is_that_of_the_plan_whatever_time_it_took() -> None:
    result = solve(instances.load("tiny/000"), "greedy", Options(threads=1))
    assert result.plan is not None
    slow = replace(result.plan, solver={**result.plan.solver, "seconds": 99.0})
    other = replace(result.plan, solver={**result.plan.solver, "seed": 1})
    found = [equal_plans.digest(replace(result, plan=plan)) for plan in (result.plan, slow, other)]
    assert found[0] == found[1] != found[2]
    assert equal_plans.digest(replace(result, plan=None)) == f"{result.status}, bound {result.bound}"


def test_what_differs_is_listed_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({"a by greedy": "1", "b by greedy": "2"}))
    new.write_text(json.dumps({"a by greedy": "1", "b by greedy": "3", "c by greedy": "4"}))
    monkeypatch.setattr(sys, "argv", ["equal_plans.py", str(old), str(old)])
    equal_plans.main()
    assert capsys.readouterr().out == "2 solves in both, 0 plans differ\n"
    monkeypatch.setattr(sys, "argv", ["equal_plans.py", str(old), str(new)])
    with pytest.raises(CheckFailedError, match="2 of 3"):
        equal_plans.main()
    assert "| b by greedy | 2 | 3 |\n| c by greedy | - | 4 |" in capsys.readouterr().out

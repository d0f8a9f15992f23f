"""The ablation: an arm for every move, relaxation and special case, which leaves out that and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import ablation
import pytest
from paired import solve_one
from paired.arms import Arm, Tree
from paired.cases import cases

from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.solvers.bounds import names as bound_names
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.search import opening
from jigsaw_opt.solvers.search.moves import names as move_names
from jigsaw_opt.solvers.search.param_file import from_toml

TREE = Tree.at(Path(__file__).parents[2])


def arms() -> dict[str, Arm]:
    return {arm.name: arm for arm in ablation.all_arms(TREE, ["driver.decay=0.5"])}


def test_every_member_has_an_arm_that_leaves_out_itself_alone() -> None:
    found = arms()
    assert list(found)[:2] == ["everything", "control"]
    assert {name for name in found if name.startswith("move ")} == {f"move {name}" for name in move_names()}
    assert {name for name in found if name.startswith("bound ")} == {f"bound {name}" for name in bound_names()}
    for name in move_names():
        assert from_toml(found[f"move {name}"].params) == SearchParams(without=(name,))
    for name in bound_names():
        arm = found[f"bound {name}"]
        assert (arm.params, arm.without_bounds) == ("", (name,))


def test_special_cases_are_numbers_that_differ_from_their_defaults() -> None:
    for name in ablation.SPECIAL_CASES:
        arm = arms()[f"case {name}"]
        if not arm.constants:
            assert from_toml(arm.params) != SearchParams()
        for setting in arm.constants:
            place, _, value = setting.partition("=")
            module, _, constant = place.partition(":")
            assert getattr(import_module(module), constant) != json.loads(value)
    driver = from_toml(arms()["set driver.decay=0.5"].params).driver
    assert driver == replace(SearchParams().driver, decay=0.5)
    both = ablation.with_setting(TREE, "both", 'without=["restart", "intensify"]')
    assert from_toml(both.params).without == ("restart", "intensify")


def test_parameters_constants_and_rows_that_there_are_not_are_refused() -> None:
    for setting in ("decay=0.5", "driver.decay", "driver.decay=2", "driver.hurry=1", 'without=["rest"]'):
        with pytest.raises(InvalidInputError):
            ablation.with_setting(TREE, "mine", setting)
    for setting in ("open:_STEPS=1", "opening:_STAIRS=1", "opening:_STEPS=one", "opening:_STEPS"):
        with pytest.raises(UsageError, match=setting):
            ablation.with_setting(TREE, "mine", setting)
    names = [arm.name for arm in ablation.chosen(list(arms().values()), ["control", "case"])]
    assert names == ["everything", "control", *(f"case {name}" for name in ablation.SPECIAL_CASES)]
    with pytest.raises(UsageError, match="nothing is called 'move restar'"):
        ablation.chosen(list(arms().values()), ["move restar"])


def test_a_constant_is_set_in_the_process_that_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_STEPS", opening._STEPS)
    (setting,) = ablation.with_setting(TREE, "mine", "opening:_STEPS=1").constants
    solve_one.set_constant(setting)
    assert opening._STEPS == 1


def test_only_what_can_matter_is_run(tmp_path: Path) -> None:
    limits = {"time_limits": [], "work_limits": [1.0]}
    case = cases(["tiny/004"], tmp_path, solver="auto", seeds=[0], workers=1, most_gpus=4, **limits)[0]
    assert case.instance.objective == "period"
    made = {arm.name for arm in arms().values() if arm.matters is None or arm.matters(case, {"moves": ["restart"]})}
    assert {"control", "move restart", "bound gpu_work"} <= made
    assert not made & {"move intensify", "bound mean_busy_times"}

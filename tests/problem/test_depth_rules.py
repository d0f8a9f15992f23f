"""Depth rules, and one that another package brings: documents, solvers and checker know it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from examples.own_depth_rule import TwoTier
from jigsaw_opt.checking import check
from jigsaw_opt.documents import encode_instance
from jigsaw_opt.problem import FreeDepth, FullDepth, Instance, Plan, StaircaseDepth, compile_instance
from jigsaw_opt.problem.depth import Depth, LevelRule
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import names
from jigsaw_opt.solvers.solve import solve
from tests.installed import installed, jigsaw
from tests.refusals import carries, misuse


def with_depth(instance: Instance, depth: Depth) -> Instance:
    return replace(instance, jobs=tuple(replace(job, depth=depth) for job in instance.jobs))


def with_levels(plan: Plan, job: int, levels: list[int]) -> Plan:
    """The plan with other levels in the first iteration of a job; times stay."""
    old = plan.jobs[job]
    first, *rest = old.iterations
    blocks = tuple(replace(block, level=level) for block, level in zip(first.blocks, levels, strict=True))
    changed = replace(old, iterations=(replace(first, blocks=blocks), *rest))
    return plan.with_jobs((*plan.jobs[:job], changed, *plan.jobs[job + 1 :]))


@pytest.mark.parametrize(
    ("depth", "limits"),
    [
        (FullDepth(), LevelRule((3, 3, 3, 3), 4, 24, None)),
        (StaircaseDepth(), LevelRule((1, 2, 3, 3), 2, 18, None)),
        (StaircaseDepth((1, 1, 2, 3)), LevelRule((1, 1, 2, 3), 1, 14, None)),
        (FreeDepth(), LevelRule(None, 1, 15, None)),
        (FreeDepth(9, "1/2", 2), LevelRule(None, 4, 12, 2)),
        (TwoTier(1), LevelRule((1, 1, 1, 3), 1, 12, None)),
        (TwoTier(9, 2), LevelRule((3, 3, 3, 3), 4, 24, None)),
    ],
    ids=str,
)
def test_rules_in_numbers(depth: Depth, limits: LevelRule) -> None:
    assert depth.limits(workers=4, deepest=3, iterations=2) == limits


@pytest.mark.parametrize("solver", names())
def test_every_solver_keeps_a_rule_of_ones_own(solver: str, pair: Instance) -> None:
    instance = with_depth(pair, TwoTier(1))
    options = Options(work_limit=None if solver == "phased" else 0.5, threads=1)
    result = solve(instance, solver, options)
    assert result.plan is not None and not check(instance, result.plan)
    # Two workers on two levels: the staircase by another name.
    twin = solve(with_depth(pair, StaircaseDepth()), solver, options)
    assert (result.objective, result.bound) == (twin.objective, twin.bound)


@pytest.mark.parametrize(("steps", "levels"), [([1, 2], [1, 1]), ([1, 2], [2, 2]), ([2, 2], [1, 2])])
def test_the_checker_compares_levels_with_those_of_the_rule(
    pair: Instance, steps: list[int], levels: list[int]
) -> None:
    first, *others = pair.data_parallel
    instance = replace(pair, jobs=(replace(first, depth=StaircaseDepth(tuple(steps))), *others))
    plan = solve(instance, "greedy", Options()).plan
    assert plan is not None and not check(instance, plan)
    assert "levels" in {violation.rule for violation in check(instance, with_levels(plan, 0, levels))}


@pytest.mark.parametrize("levels", [[1, 1], [2, 2]])
def test_the_checker_asks_the_rule(pair: Instance, levels: list[int]) -> None:
    instance = with_depth(pair, TwoTier(1))
    plan = solve(instance, "greedy", Options()).plan
    assert plan is not None
    told = [violation.message for violation in check(instance, with_levels(plan, 0, levels))]
    assert any(carries(message, "depth", "'two-tier'") for message in told)
    # Without anybody at the deepest level a bucket has no contributor, whatever the rule says.
    assert any("needs 1" in message for message in told) == (levels == [1, 1])


@dataclass(frozen=True, slots=True)
class Absurd(TwoTier):
    multiset: tuple[int, ...] = ()

    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        return LevelRule.fixed(self.multiset, iterations)


@pytest.mark.parametrize("multiset", [(2,), (1, 1), (2, 1), (0, 2), (1, 3)])
def test_limits_that_no_levels_keep_are_refused(pair: Instance, multiset: tuple[int, ...]) -> None:
    jobs = (replace(pair.jobs[0], depth=Absurd(1, multiset=multiset)), pair.jobs[1])
    with misuse("failed depth"):
        compile_instance(replace(pair, jobs=jobs))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that brings the example, and once more under a wrong name."""
    rule = "examples.own_depth_rule:TwoTier"
    return installed(tmp_path, "jigsaw_opt.depth_rules", {"two-tier": rule, "other": rule})


def test_documents_know_the_rules_of_installed_packages(pair: Instance, package: Path, tmp_path: Path) -> None:
    instance = with_depth(pair, TwoTier(1))
    (tmp_path / "own.json").write_bytes(encode_instance(instance))
    code, _, errors = jigsaw("solve", "own.json", "-o", "plan.json", cwd=tmp_path)
    assert code == 3 and errors.count('"two-tier"') == 2 and "$.jobs[0].depth.rule" in errors
    solved = ("solve", "own.json", "--solver", "cpsat", "-o", "plan.json")
    assert jigsaw(*solved, cwd=tmp_path, package=package)[0] == 0
    assert jigsaw("check", "own.json", "plan.json", cwd=tmp_path, package=package)[0] == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"rule": "two-tier"}, '$.jobs[0].depth: missing key "deep"'),
    "low": ({"rule": "two-tier", "deep": 0}, "$.jobs[0].depth.deep: must be an integer"),
    "unknown": ({"rule": "two-tier", "deep": 1, "shalow": 1}, '$.jobs[0].depth.shalow: unknown key "shalow"'),
    "misspelt": ({"rule": "two-tiers", "deep": 1}, 'did you mean "two-tier"?'),
}


def test_what_is_wrong_with_a_rule_of_ones_own_is_told(pair: Instance, package: Path, tmp_path: Path) -> None:
    tree = json.loads(encode_instance(pair))
    for name, (depth, _) in {**WRONG, "misnamed": ({"rule": "other", "deep": 1}, "")}.items():
        tree["jobs"][0]["depth"] = depth
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    code, _, errors = jigsaw("validate", *(f"{name}.json" for name in WRONG), cwd=tmp_path, package=package)
    assert code == 3 and [told for _, told in WRONG.values() if told not in errors] == []
    code, _, errors = jigsaw("validate", "misnamed.json", cwd=tmp_path, package=package)
    assert code == 2 and "names no depth rule 'other'" in errors


def test_the_schema_has_the_rules_of_installed_packages(tmp_path: Path) -> None:
    package = installed(tmp_path, "jigsaw_opt.depth_rules", {"two-tier": "examples.own_depth_rule:TwoTier"})
    _, printed, _ = jigsaw("schema", "instance", cwd=tmp_path, package=package)
    added = json.loads(printed)["$defs"]["depth"]["oneOf"][-1]
    assert added["properties"]["rule"] == {"const": "two-tier"} and added["required"] == ["rule", "deep"]

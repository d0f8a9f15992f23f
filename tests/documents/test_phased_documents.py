"""The document of a phased plan: read, written, and every problem with its path (specification: phased-plans)."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import (
    decode_instance,
    decode_plan,
    encode_plan,
    instance_sha256,
    load_document,
    load_plan,
    save_instance,
    save_plan,
    schema,
)
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Instance, Plan
from tests.refusals import carries, misuse
from tests.test_worked_example import document

TREE = json.loads(document("Phased plans"))
PHASE = "$.groups[0].phases[0]"


@pytest.fixture(scope="module")
def long() -> Instance:
    """Job `a` of the worked example, 100000 iterations of it."""
    worked = decode_instance(document("Instance"))
    return replace(worked, name="long", jobs=(replace(worked.jobs[0], iterations=100000),))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return decode_plan(document("Phased plans"))


def test_the_plan_of_the_page_is_correct(long: Instance, plan: Plan) -> None:
    assert plan.instance_sha256 == instance_sha256(long)
    assert check(long, plan) == ()
    assert Draft202012Validator(schema("phased-plan")).is_valid(TREE)


def test_what_is_saved_is_loaded(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "p.json"
    save_plan(plan, path)
    assert load_plan(path) == load_document(path) == decode_plan(encode_plan(plan)) == plan


GONE = object()


@pytest.mark.parametrize(
    ("steps", "value", "place"),
    [
        (("format",), "jigsaw-phased-plan/2", "$.format"),
        (("period_us",), None, "$.period_us"),
        (("groups",), [], "$.groups"),
        (("groups",), GONE, "$"),
        (("groups", 0, "phases"), [], "$.groups[0].phases"),
        (("groups", 0, "name"), "x", "$.groups[0].name"),
        (("groups", 0, "phases", 0, "jobs"), [], f"{PHASE}.jobs"),
        (("groups", 0, "phases", 0, "start_us"), -1, f"{PHASE}.start_us"),
        (("groups", 0, "phases", 0, "period_us"), 0, f"{PHASE}.period_us"),
        (("groups", 0, "phases", 0, "repeats"), 0, f"{PHASE}.repeats"),
        (("groups", 0, "phases", 0, "repeats"), 1.0, f"{PHASE}.repeats"),
        (("groups", 0, "phases", 0, "jobs", 0, "gpus", 0), "s0", f"{PHASE}.jobs[0].gpus[0]"),
        (("solver",), {"x": float("inf")}, "$.solver.x"),
    ],
)
def test_every_problem_has_its_path(steps: tuple[str | int, ...], value: object, place: str) -> None:
    tree: Any = copy.deepcopy(TREE)
    parent: Any = tree
    for step in steps[:-1]:
        parent = parent[step]
    parent[steps[-1]] = value
    if value is GONE:
        del parent[steps[-1]]
    with pytest.raises(InvalidInputError) as caught:
        decode_plan(json.dumps(tree))
    assert [problem.path for problem in caught.value.problems] == [place]


def test_commands_take_both_kinds_or_refuse_one_by_name(
    tmp_path: Path, long: Instance, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, path = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(long, instance)
    save_plan(plan, path)
    assert main(["check", str(instance), str(path)]) == 0
    assert main(["validate", str(instance), str(path)]) == 0
    capsys.readouterr()
    assert main(["plot", str(instance), str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == f"a |{'A' * 72}|"
    assert shown[-1].endswith("0 s to 2.1 min, 50,000 periods of 2.52 ms, iterations in each: a 2")
    page, trace = tmp_path / "p.html", tmp_path / "p.trace"
    assert main(["plot", str(instance), str(path), "-o", str(page)]) == 0
    assert "50,000 periods" in page.read_text() and page.read_text().count("<html") == 1
    assert main(["export", str(instance), str(path), "--to", "perfetto", "-o", str(trace)]) == 0
    events = [event for event in json.loads(trace.read_bytes())["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["ts"], event["dur"]) for event in events] == [("a", 0, 126000000)]
    capsys.readouterr()
    assert main(["plot", str(instance), str(path), "--foreground", "a"]) == 0
    assert main(["shifts", str(instance), "--plan", str(path)]) == 3
    assert carries(capsys.readouterr().err, "finite", "horizon")
    with misuse("unsupported", "unsupported", naming=["phases", "--solver search"]):
        _ = plan.jobs
    save_plan(replace(plan, objective=plan.objective + 1), path)
    assert main(["check", str(instance), str(path)]) == 7
    assert carries(capsys.readouterr().out, "objective", "docs/specification.md#objective")
    assert main(["failures", str(instance), str(path)]) == 7

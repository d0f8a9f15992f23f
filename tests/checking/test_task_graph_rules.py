"""For every rule of task-graph jobs, the worked pipeline changed so that it breaks that rule where the checker says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.checking import Violation, check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, decode_plan, instance_sha256
from tests.pages import SPECIFICATION, section
from tests.refusals import carries

PAGE = section(SPECIFICATION.read_text(encoding="utf-8"), "Worked pipeline")
INSTANCE, PLAN = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
Json = dict[str, Any]


def judged(
    change_plan: Callable[[Json], object], change_instance: Callable[[Json], object] = lambda tree: None
) -> list[Violation]:
    """What the checker says of a changed plan for a changed instance, whose hash it states."""
    tree, plan = json.loads(INSTANCE), json.loads(PLAN)
    change_instance(tree)
    instance = decode_instance(json.dumps(tree))
    plan["instance_sha256"] = instance_sha256(instance)
    change_plan(plan)
    return list(check(instance, decode_plan(json.dumps(plan))))


def test_the_barrier_passes_over_an_iteration_that_lacks_operations() -> None:
    for barrier in ("job", "slot"):
        found = judged(
            lambda plan: plan["jobs"][0]["iterations"][1]["blocks"].pop(),
            lambda tree, barrier=barrier: tree["jobs"][0]["shape"].update(barrier=barrier),
        )
        assert [(each.rule, each.path) for each in found if each.rule != "objective"] == [
            ("document", f"{SECOND}.blocks")
        ]


def run(plan: Json, iteration: int, kind: str, number: int, **times: int) -> None:
    plan["jobs"][0]["iterations"][iteration][kind][number].update(times)


def block(iteration: int, number: int, start_us: int, end_us: int) -> Callable[[Json], None]:
    return lambda plan: run(plan, iteration, "blocks", number, start_us=start_us, end_us=end_us)


def transfer(iteration: int, number: int, start_us: int, end_us: int) -> Callable[[Json], None]:
    return lambda plan: run(plan, iteration, "transfers", number, start_us=start_us, end_us=end_us)


FIRST = "$.jobs[0].iterations[0]"
SECOND = "$.jobs[0].iterations[1]"
BROKEN: list[tuple[Callable[[Json], object], str, str, str]] = [
    (lambda p: p["jobs"][0]["gpus"].pop(), "document", "$.jobs[0].gpus", "1 GPUs for 2 slots"),
    (lambda p: p["jobs"][0]["iterations"].pop(), "document", "$.jobs[0].iterations", "1 iterations, but the job has 2"),
    (
        lambda p: p["jobs"][0]["iterations"][1]["blocks"].pop(),
        "document",
        f"{SECOND}.blocks",
        "3 blocks, but the task graph has 4",
    ),
    (lambda p: p["jobs"][0]["iterations"][1]["transfers"].pop(), "document", f"{SECOND}.transfers", "1 transfers"),
    (lambda p: p["jobs"][0].update(gpus=["s0/0", "s0/0"]), "placement", "$.jobs[0].gpus[1]", "also holds slot 0"),
    (lambda p: p["jobs"][0].update(gpus=["s0/0", "s1/1"]), "placement", "$.jobs[0].gpus[1]", "no GPU 's1/1'"),
    (block(0, 1, 13, 22), "duration", f"{FIRST}.blocks[1]", "'F1' lasts 9 us, but takes 10 us"),
    (transfer(1, 0, 77, 79), "duration", f"{SECOND}.transfers[0]", "'act' lasts 2 us, but takes 3 us"),
    (
        transfer(0, 0, 9, 13),
        "edges",
        f"{FIRST}.transfers[0]",
        "'act' starts at 9, before 'F0' of iteration 0 ends at 10",
    ),
    (
        block(0, 2, 23, 80),
        "barrier",
        f"{SECOND}.blocks[1]",
        "before the last block of slot 'second' of iteration 0 ends at 80",
    ),
    (transfer(1, 0, 44, 79), "edges", f"{SECOND}.transfers[0]", "'act' starts at 44, before 'F0' of iteration 1"),
    (transfer(0, 1, 43, 79), "exclusive", f"{SECOND}.transfers[0]", "on link wire"),
    (block(0, 0, 0, 11), "exclusive", "$.jobs[1].iterations[0].blocks[0]", "starts at 10 on GPU s0/0"),
    (lambda p: p.update(objective=131, bound=0, status="feasible"), "objective", "$.objective", "the makespan is 132"),
]


@pytest.mark.parametrize(("change", "rule", "path", "message"), BROKEN)
def test_a_change_breaks_its_rule_where_it_stands(
    change: Callable[[Json], object], rule: str, path: str, message: str
) -> None:
    assert judged(lambda plan: None) == []
    found = judged(change)
    assert [v for v in found if v.rule == rule and v.path == path and message in v.message], found


def test_no_operation_starts_before_the_release() -> None:
    found = judged(lambda plan: None, lambda tree: tree["jobs"][0].update(release_us=12))
    assert [(v.rule, v.path) for v in found] == [
        ("release", f"{FIRST}.blocks[0]"),
        ("release", f"{FIRST}.transfers[0]"),
    ]


def test_a_task_graph_job_ends_by_its_deadline() -> None:
    assert judged(lambda plan: None, lambda tree: tree["jobs"][0].update(deadline_us=132)) == []
    found = judged(lambda plan: None, lambda tree: tree["jobs"][0].update(deadline_us=100))
    assert [(v.rule, v.path) for v in found] == [("deadline", "$.jobs[0]")]
    assert carries(found[0].message, "deadline", "100")


def test_a_gpu_runs_every_block_of_its_slot_or_none() -> None:
    found = judged(lambda plan: None, lambda tree: tree["cluster"]["servers"][1].update(gpu_type="a100"))
    assert [(v.rule, v.path) for v in found] == [("placement", "$.jobs[0].gpus[1]")]
    assert carries(found[0].message, "'F1'", "cannot")


def test_routes_join_all_slots_also_where_nothing_is_transferred() -> None:
    def apart(tree: Json) -> None:
        del tree["cluster"]["links"]
        tree["jobs"][0]["shape"].update(transfers=[], edges=[["F0", "F1"], ["F1", "B1"], ["B1", "B0"]])

    def silent(plan: Json) -> None:
        for iteration in plan["jobs"][0]["iterations"]:
            iteration["transfers"] = []

    assert [(v.rule, v.path) for v in judged(silent, apart)] == [("placement", "$.jobs[0].gpus")]


def test_a_sharded_block_is_as_slow_as_its_slowest_gpu_and_takes_all_of_them() -> None:
    """Over slots on two types of 10 and 14 us, in the first iteration next to the worker on one of them."""

    def sharded(tree: Json) -> None:
        tree["cluster"]["servers"][1]["gpu_type"] = "a100"
        shape = tree["jobs"][0]["shape"]
        for number, name in enumerate(("F0", "F1", "B1", "B0")):
            shape["blocks"][number]["duration_us"] = {"v100": 10, "a100": 14 if name == "F0" else 10}
        shape["blocks"][0].update(slots=["first", "second"])
        del shape["blocks"][0]["slot"]
        shape["holds"] = [{"from": "F0", "to": "B0", "bytes": 500, "slot": "first"}]

    found = {(v.rule, v.path) for v in judged(lambda plan: None, sharded)}
    assert {("duration", f"{FIRST}.blocks[0]"), ("duration", f"{SECOND}.blocks[0]")} <= found
    late = judged(block(0, 0, 0, 14), sharded)
    overlaps = {(v.path, v.message.partition(" while")[0]) for v in late if v.rule == "exclusive"}
    assert (f"{FIRST}.blocks[1]", "starts at 13 on GPU s1/0") in overlaps


def test_a_barrier_of_the_whole_job_counts_transfers_too() -> None:
    change = transfer(0, 1, 43, 67)
    assert {v.rule for v in judged(change)} == {"edges"}
    found = judged(change, lambda tree: tree["jobs"][0]["shape"].update(barrier="job"))
    assert (f"{SECOND}.blocks[0]", "barrier") in {(v.path, v.rule) for v in found}


def test_operations_of_the_other_kind_of_job_are_no_plan() -> None:
    def level(plan: Json) -> None:
        for iteration in plan["jobs"][0]["iterations"]:
            iteration["transfers"] = []
            for item in iteration["blocks"]:
                item["level"] = 1

    found = judged(level)
    assert ("$.jobs[0].iterations", "the operations have levels, but the job has a task graph") in {
        (v.path, v.message) for v in found
    }

    def plain(plan: Json) -> None:
        for iteration in plan["jobs"][1]["iterations"]:
            del iteration["blocks"][0]["level"]

    assert carries({v.message for v in judged(plain)}, "operations", "data-parallel")


def test_the_command_checks_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "instance.json", tmp_path / "plan.json"
    instance.write_text(INSTANCE)
    plan.write_text(PLAN)
    assert main(["check", str(instance), str(plan)]) == 0
    plan.write_text(PLAN.replace('{"start_us": 13, "end_us": 23}', '{"start_us": 12, "end_us": 23}'))
    assert main(["check", str(instance), str(plan)]) == 7
    assert carries(capsys.readouterr().out, "edges", "docs/specification.md#edges")
    plan.write_text(PLAN)
    assert main(["plot", str(instance), str(plan), "--to", "text"]) == 0
    assert "wire |" in capsys.readouterr().out
    assert main(["export", str(instance), str(plan), "--to", "perfetto", "-o", str(tmp_path / "trace.json")]) == 0

"""Task-graph jobs: every rule broken in one place, and random plans judged alike by checker and referee."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from fault_campaign.changed import changed
from fault_campaign.referee import sha256, verdict

from jigsaw_opt.checking import Violation, check
from jigsaw_opt.checking.checker import violations
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan, instance_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.instance import Horizon, Objective
from tests.pages import SPECIFICATION, section
from tests.random_instances import (
    GOALS,
    tight_instance,
    with_guarantees,
    with_licences,
    with_power_caps,
    with_route_policies,
)
from tests.random_task_graphs import changed_plan, one_after_another, random_task_graph_instance
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


@pytest.mark.parametrize(
    ("change", "broken", "told"),
    [
        (
            lambda tree: tree["jobs"][0].update(release_us=12),
            [("release", f"{FIRST}.blocks[0]"), ("release", f"{FIRST}.transfers[0]")],
            (),
        ),
        (lambda tree: tree["jobs"][0].update(deadline_us=132), [], ()),
        (lambda tree: tree["jobs"][0].update(deadline_us=100), [("deadline", "$.jobs[0]")], ("deadline", "100")),
        (
            lambda tree: tree["cluster"]["servers"][1].update(gpu_type="a100"),
            [("placement", "$.jobs[0].gpus[1]")],
            ("'F1'", "cannot"),
        ),
    ],
    ids=["release", "deadline kept", "deadline", "type of GPU"],
)
def test_a_change_of_the_instance_breaks_its_rule(
    change: Callable[[Json], None], broken: list[tuple[str, str]], told: tuple[str, ...]
) -> None:
    found = judged(lambda plan: None, change)
    assert [(v.rule, v.path) for v in found] == broken
    assert not told or carries(found[0].message, *told)


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


_INSTANCES, _CHANGES = 30, 60


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_both_judge_random_plans_alike(horizon: Horizon, objective: Objective) -> None:
    """A walk through correct plans, which it makes denser: whatever is tried, both say the same of it."""
    rules: Counter[str] = Counter()
    for seed in range(_INSTANCES):
        random, instance = Random(seed), random_task_graph_instance(seed, horizon, objective)
        if seed % 4 == 0 and horizon == "finite":
            instance = tight_instance(seed, objective, "task-graphs")
        elif seed % 2:
            instance = with_guarantees(instance, random, 60)
        if seed % 3:
            instance = with_route_policies(instance, random)
        if seed % 5 > 2:
            instance = with_power_caps(instance, random)
        if seed % 7 > 3:
            instance = with_licences(instance, random)
        document = json.loads(encode_instance(instance))
        plan = one_after_another(instance, random)
        for step in range(_CHANGES if plan is not None else 0):
            tried = plan if step == 0 else changed_plan(instance, plan, random)
            found = violations(instance, tried)
            own = verdict(document, json.loads(encode_plan(tried)))
            assert bool(found) == bool(own), f"{seed} {step}: {found} or {own!r}"
            rules.update({violation.rule for violation in found} or {"correct"})
            plan = plan if found else tried
    expected = {
        "placement",
        "duration",
        "release",
        "barrier",
        "edges",
        "exclusive",
        "power",
        "memory",
        "licences",
        "correct",
    }
    expected |= {"deadline" if horizon == "finite" else "pace"}
    assert rules.keys() >= (expected if horizon == "finite" else expected - {"release"})
    assert rules["correct"] > 100 and rules["memory"] > 5


def test_both_judge_damaged_documents_alike() -> None:
    """Numbers, GPUs, keys and lists changed at random: the checker raises on none of them."""
    found: Counter[bool] = Counter()
    for seed in range(_INSTANCES):
        random, instance = Random(seed), random_task_graph_instance(seed, *GOALS[seed % 3])
        document, plan = json.loads(encode_instance(instance)), one_after_another(instance, random)
        for _ in range(_CHANGES // 2 if plan is not None and not violations(instance, plan) else 0):
            tried = changed(json.loads(encode_plan(replace(plan, solver={"name": "none"}))), random)
            try:
                wrong = bool(violations(instance, decode_plan(json.dumps(tried))))
            except InvalidInputError:
                wrong = True
            assert wrong == bool(verdict(document, tried)), f"{seed}: {tried}"
            found[wrong] += 1
    assert found[True] > 100 and found[False] > 10


def test_documents_and_hashes_of_random_shapes() -> None:
    for seed in range(40):
        instance = random_task_graph_instance(seed)
        data = encode_instance(instance)
        assert decode_instance(data) == instance
        assert sha256(json.loads(data)) == instance_sha256(instance)
        plan = one_after_another(instance, Random(seed))
        if plan is not None:
            assert decode_plan(encode_plan(plan)) == plan
            assert check(instance, plan) == violations(instance, plan)

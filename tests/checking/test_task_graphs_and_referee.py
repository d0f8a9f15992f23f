"""The checker and the referee, which share no code, judge plans of random task-graph jobs alike."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from fault_campaign.changed import changed
from fault_campaign.referee import sha256, verdict

from jigsaw_opt.checking import check
from jigsaw_opt.checking.checker import violations
from jigsaw_opt.documents import decode_instance, decode_plan, encode_instance, encode_plan, instance_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.instance import Horizon, Objective
from tests.random_instances import GOALS, tight_instance, with_guarantees, with_power_caps, with_route_policies
from tests.random_task_graphs import changed_plan, one_after_another, random_task_graph_instance

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
        document = json.loads(encode_instance(instance))
        plan = one_after_another(instance, random)
        for step in range(_CHANGES if plan is not None else 0):
            tried = plan if step == 0 else changed_plan(instance, plan, random)
            found = violations(instance, tried)
            own = verdict(document, json.loads(encode_plan(tried)))
            assert bool(found) == bool(own), f"{seed} {step}: {found} or {own!r}"
            rules.update({violation.rule for violation in found} or {"correct"})
            plan = plan if found else tried
    expected = {"placement", "duration", "release", "barrier", "edges", "exclusive", "power", "memory", "correct"}
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

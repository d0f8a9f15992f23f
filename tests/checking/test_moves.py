"""Jobs that pause and move between phases, beside a referee that expands plans (specification: moves)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import Instance, Plan
from tests.checking.test_phased_plans import CLUSTER, INSTANCE, decoded, document
from tests.phased_referee import accepts, listed
from tests.refusals import carries

Json = dict[str, Any]
G = "groups"


def allowing(**restart_us: int) -> Instance:
    """The instance whose named jobs may move."""
    return replace(INSTANCE, jobs=tuple(replace(job, restart_us=restart_us.get(job.name)) for job in INSTANCE.jobs))


def plan_for(instance: Instance, tree: Json | None = None) -> Plan:
    return replace(decoded(document() if tree is None else tree), instance_sha256=instance_sha256(instance))


def rules(instance: Instance, plan: Plan) -> set[str]:
    """Names of the broken rules, which the referee agrees with."""
    found = {violation.rule for violation in check(instance, plan)}
    assert accepts(instance, plan) == (not found)
    return found


def moved(group: int, phase: int, job: int, *gpus: str) -> Json:
    tree = document()
    tree[G][group]["phases"][phase]["jobs"][job]["gpus"] = list(gpus)
    return tree


def test_a_job_may_move_to_other_gpus_and_pays_a_restart() -> None:
    tree = moved(0, 1, 1, "x/1")  # `lone` ends at 76 on y/0, and goes on at 86 on x/1.
    assert rules(INSTANCE, plan_for(INSTANCE, tree)) == {"placement"}
    for restart_us, broken in ((0, set()), (10, set()), (11, {"moves"})):
        instance = allowing(lone=restart_us)
        assert rules(instance, plan_for(instance, tree)) == broken
    (violation,) = check(instance, plan_for(instance, tree))
    assert violation.path == "$.groups[0].phases[1].jobs[1]"
    assert carries(violation.message, "86", "11", "76")


def test_the_order_of_gpus_counts() -> None:
    tree = document()
    later = tree[G][0]["phases"][2]
    tree[G][0]["phases"] = [tree[G][0]["phases"][0], later]
    later["jobs"][0]["gpus"] = ["y/0", "x/0"]  # Those of `pair`, which ends at 60 and goes on at 156.
    for restart_us, broken in ((96, set()), (97, {"moves"})):
        asked = allowing(pair=restart_us).jobs
        instance = replace(INSTANCE, jobs=(asked[0], replace(asked[2], iterations=3), *asked[3:]))
        assert rules(instance, plan_for(instance, tree)) == broken


def test_who_stays_in_the_next_phase_pays_nothing() -> None:
    instance = allowing(lone=10**6)
    assert rules(instance, plan_for(instance)) == set()


@pytest.mark.parametrize(("job", "gap"), [("pair", 96), ("pipe", 35)])
def test_a_pause_on_the_same_gpus_is_paid_for(job: str, gap: int) -> None:
    for restart_us, broken in ((gap, set()), (gap + 1, {"moves"})):
        instance = allowing(**{job: restart_us})
        assert rules(instance, plan_for(instance)) == broken


@pytest.mark.parametrize(("server", "limit", "job"), [(0, 70, "pair"), (2, 79, "pipe")])
def test_who_is_absent_and_may_move_holds_no_memory(server: int, limit: int, job: str) -> None:
    servers = list(CLUSTER.servers)
    servers[server] = replace(servers[server], gpu_memory=limit)
    for asked, broken in ((INSTANCE, {"memory"}), (allowing(**{job: 0}), set())):
        instance = replace(asked, cluster=replace(CLUSTER, servers=tuple(servers)))
        assert rules(instance, plan_for(instance)) == broken


def test_memory_is_needed_where_a_job_has_moved_to() -> None:
    tree = moved(1, 2, 0, "y/1", "z/1")
    for limit, broken in ((71, set()), (59, {"memory"})):
        servers = (CLUSTER.servers[0], replace(CLUSTER.servers[1], gpu_memory=limit), CLUSTER.servers[2])
        instance = replace(allowing(pipe=0), cluster=replace(CLUSTER, servers=servers))
        assert rules(instance, plan_for(instance, tree)) == broken


def test_all_phases_of_a_job_are_in_one_group() -> None:
    tree = document()
    tail = tree[G][1]["phases"][1]
    tree[G].append({"phases": [dict(tail, start_us=200, repeats=1, jobs=[dict(tail["jobs"][0], gpus=["x/1"])])]})
    tail["repeats"] = 2
    instance = allowing(tail=0)
    assert "groups" in rules(instance, plan_for(instance, tree))


def numbers(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all integers."""
    if isinstance(tree, int):
        return [path]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, item in items for found in numbers(item, (*path, key))]


def set_off(draw: random.Random, tree: Json) -> None:
    """Change a number of the document."""
    *path, key = draw.choice(numbers(tree))
    place: Any = tree
    for step in path:
        place = place[step]
    place[key] = max(int(key in ("period_us", "repeats")), place[key] + draw.choice((-9, -1, 1, 1, 2, 10, 19)))


def displace(draw: random.Random, tree: Json) -> None:
    """Let a job work on other GPUs in one phase, and a phase start at another time."""
    job = draw.choice(draw.choice(draw.choice(tree[G])["phases"])["jobs"])
    job["gpus"] = draw.sample([f"{server.name}/{k}" for server in CLUSTER.servers for k in range(2)], len(job["gpus"]))
    phase = draw.choice(draw.choice(tree[G])["phases"])
    phase["start_us"] = max(0, phase["start_us"] + draw.choice((0, 0, -5, 5, 20)))


@pytest.mark.parametrize("change", [set_off, displace])
def test_the_checker_and_the_expansion_agree(change: Callable[[random.Random, Json], None]) -> None:
    draw, verdicts = random.Random(1), []
    for _ in range(120):
        moving = {job.name: draw.choice((0, 5, 20, 60)) for job in INSTANCE.jobs if draw.random() < 0.6}
        instance = allowing(**moving) if change is displace else INSTANCE
        tree = document()
        for _ in range(draw.choice((1, 1, 2))):
            change(draw, tree)
        plan = plan_for(instance, tree)
        if draw.random() < 0.8:
            plan = replace(plan, objective=max(phase.end_us for _, _, phase in plan.all_phases()), bound=0)
        verdicts.append(accepts(instance, plan))
        assert (check(instance, plan) == ()) == verdicts[-1], json.dumps(tree)
        # A correct plan of phases without moves stays correct when its iterations are listed.
        assert not verdicts[-1] or plan.moved or check(instance, listed(instance, plan)) == (), json.dumps(tree)
    assert 0 < sum(verdicts) < len(verdicts)

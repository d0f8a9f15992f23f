"""Tight random plans: every move of a start, an end, a level, a GPU or a bound breaks some rule."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import jigsaw_opt.checking as checking
from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Model,
    Plan,
    Segment,
    Server,
    compile_instance,
)
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.solvers.greedy import greedy_timetable
from tests.oracle import optimum
from tests.random_instances import random_instance

KINDS = (("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period"))


def greedy_plan(instance: Instance) -> Plan | None:
    operations = compile_instance(instance)
    timetable = greedy_timetable(operations)
    if timetable is None:
        return None
    value = objective_of(operations, timetable.jobs, timetable.period_us)
    digest = instance_sha256(instance)
    return Plan.of_jobs(instance.name, digest, "optimal", value, value, timetable.period_us, timetable.jobs)


@pytest.mark.parametrize("seed", range(60))
def test_changes_of_one_place_are_rejected(seed: int) -> None:
    horizon, objective = KINDS[seed % 3]
    instance = random_instance(seed, horizon, objective, 10)  # type: ignore[arg-type]
    plan = greedy_plan(instance)
    if plan is None:
        assert optimum(instance) is None
        return
    assert check(instance, plan) == ()
    job = plan.jobs[0]
    blocks = job.iterations[0].blocks

    def with_block(block: Block) -> Plan:
        iteration = replace(job.iterations[0], blocks=(block, *blocks[1:]))
        return plan.with_jobs((replace(job, iterations=(iteration, *job.iterations[1:])), *plan.jobs[1:]))

    first = blocks[0]
    broken = {
        "an end": with_block(replace(first, end_us=first.end_us - 1)),
        "a level": with_block(replace(first, level=0)),
        "a GPU": plan.with_jobs((replace(job, gpus=("nowhere/0", *job.gpus[1:])), *plan.jobs[1:])),
        "the bound": replace(plan, bound=plan.bound + 1),
        "the objective": replace(plan, objective=plan.objective + 1),
        "an iteration": plan.with_jobs((replace(job, iterations=job.iterations[1:]), *plan.jobs[1:])),
    }
    if job.iterations[0].transfers:
        missing = replace(job.iterations[0], transfers=job.iterations[0].transfers[1:])
        broken["a transfer"] = plan.with_jobs((replace(job, iterations=(missing, *job.iterations[1:])), *plan.jobs[1:]))
    accepted = [what for what, changed in broken.items() if not check(instance, changed)]
    assert accepted == []


@pytest.mark.parametrize("lead", [1, 5, 19])
def test_a_start_that_moves_on_a_full_gpu_is_rejected(lead: int) -> None:
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 0, 0),))
    jobs = tuple(Job(f"j{k}", "m", 1, 1) for k in range(3))
    instance = Instance("full", Cluster((Server("s", "v", 1, 1, 1),)), {"m": model}, jobs)
    plans = [JobPlan(f"j{k}", ("s/0",), (Iteration((Block(1, 20 * k, 20 * k + 20),), ()),)) for k in range(3)]
    plan = Plan.of_jobs("full", instance_sha256(instance), "optimal", 60, 60, None, tuple(plans))
    assert check(instance, plan) == ()
    early = replace(plans[1], iterations=(Iteration((Block(1, 20 - lead, 40 - lead),), ()),))
    assert {v.rule for v in check(instance, plan.with_jobs((plans[0], early, plans[2])))} == {"exclusive"}


def test_no_plan_beats_the_oracle() -> None:
    for seed in range(40):
        instance = random_instance(seed, operations=7)
        plan, best = greedy_plan(instance), optimum(instance)
        assert plan is None or (best is not None and plan.objective >= best)


def test_the_checker_stands_on_the_definitions_alone() -> None:
    folder = Path(checking.__file__).parent
    allowed = {"cluster", "depth", "instance", "job", "model", "phased_plan", "plan", "route_policy", "task_graph"}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jigsaw_opt."):
                room, *rest = (node.module or "").split(".")[1:]
                assert room in {"checking", "documents", "errors", "problem"}
                assert room != "problem" or set(rest) <= allowed
                assert {alias.name for alias in node.names}.isdisjoint({"Routes", "Channel"})

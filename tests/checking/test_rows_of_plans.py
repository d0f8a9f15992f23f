"""The rows of a plan hold for correct plans: a row that some plan breaks would make false proofs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.instances import best_plan, generate, load, names
from jigsaw_opt.problem import Cluster, FullDepth, Instance, Job, Model, Plan, Segment, Server, StaircaseDepth
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.solvers.case_search import prove_by_cases
from jigsaw_opt.solvers.solve import solve
from tests import random_instances as draw
from tests.checking.rows_of_plans import broken, values
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance, with_copies


def require_rows(instance: Instance, plan: Plan) -> None:
    for together in (False, True):
        rows = plan_rows(Facts(instance), plan.objective, together)
        assert broken(rows, values(rows, instance, plan, together)) == []


@pytest.mark.parametrize("tens", range(8))
def test_best_plans_keep_the_rows(tens: int) -> None:
    for name in [*names("tiny")[10 * tens :], "server/demo", "server/cyclic", "server/pcie"][:10]:
        plan = best_plan(name)
        assert plan is not None
        require_rows(load(name), plan)


@pytest.mark.parametrize("seed", [*range(1, 6), 7, 8, 9, 11, 14, 16, 17, 18, 19, *range(21, 27), 28, 29])
def test_plans_of_random_instances_keep_the_rows(seed: int) -> None:
    instance = _drawn(seed)
    for method in ("greedy", "phased" if instance.horizon == "finite" else "auto"):
        plan = solve(instance, method, **({} if method == "greedy" else {"work_limit": 0.02, "threads": 1})).plan
        assert plan is not None
        require_rows(instance, plan)


@pytest.mark.parametrize(("memory", "optimum"), [(12, 10 * 14 + 28), (11, 10 * 14 + 35)])
def test_jobs_without_memory_for_both_follow_one_another(memory: int, optimum: int) -> None:
    # States of 4 bytes each and activations of at most 4: both jobs need 12, and the second one has a block from 7 on.
    times = {"t": 2}, {"t": 5}
    models = {name: Model((Segment(name, *times, 1, held),), (1,), 4) for name, held in (("a", 3), ("b", 4))}
    jobs = Job("a", "a", 1, 3, depth=FullDepth()), Job("b", "b", 1, 1, 7, 10, FullDepth())
    cluster = Cluster((Server("s", "t", 1, memory, 10**9, 0),))
    instance = Instance("pair", cluster, models, jobs, "finite", "weighted_completion")
    plan = solve(instance, threads=1).plan
    assert plan is not None and plan.objective == optimum
    require_rows(instance, plan)
    assert prove_by_cases(instance, optimum) is not None
    assert prove_by_cases(instance, optimum + 1) is None


@pytest.mark.parametrize("name", [*names("pipeline"), *names("shop")])
def test_best_plans_of_task_graphs_keep_the_rows(name: str) -> None:
    plan = best_plan(name)
    assert plan is not None
    require_rows(load(name), plan)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_plans_of_random_task_graphs_keep_the_rows(seed: int) -> None:
    for horizon, objective in draw.GOALS:
        instance = random_task_graph_instance(seed, horizon, objective)
        if seed % 8:
            instance = draw.with_power_caps(instance, Random(seed))
        elif seed % 3 == 0:
            instance = with_copies(instance)
        elif horizon == "finite":
            instance = draw.tight_instance(seed, objective, "task-graphs" if seed % 16 else "mixed")
        for method in ("greedy", "phased" if horizon == "finite" else "auto"):
            plan = solve(instance, method, **({} if method == "greedy" else {"work_limit": 0.02, "threads": 1})).plan
            if plan is not None:
                require_rows(instance, plan)


def _drawn(seed: int) -> Instance:
    """Return an instance with some of all that rows must take into account."""
    random = Random(seed)
    horizon, objective = random.choice(draw.GOALS)
    kind = random.randrange(4)
    if kind == 0:
        instance = generate("tiny", seed)
    elif kind == 1:
        instance = random_mixed_instance(seed, horizon, objective)
    elif kind == 2:
        instance = draw.tight_instance(seed, "makespan", "data-parallel", 10)
    else:
        instance = draw.random_instance(seed, horizon, objective, 14)
    for change in (draw.with_progress_limits, draw.with_power_caps, draw.with_licences, draw.with_route_policies):
        if random.random() < 0.25:
            instance = change(instance, random)
    if random.random() < 0.25:
        instance = draw.with_guarantees(instance, random, 100)
    jobs = (_changed(instance, job, random) if isinstance(job, Job) else job for job in instance.jobs)
    return replace(instance, jobs=tuple(jobs))


def _changed(instance: Instance, job: Job, random: Random) -> Job:
    if random.random() < 0.3:
        job = replace(job, iterations=random.randint(1, 4))
    if random.random() < 0.3:
        steps = random.choice((None, 2, 3)) if isinstance(job.depth, FullDepth) else None
        job = replace(job, exchange=JobExchange(steps, random.choice((None, "1/2", 2)), None))
    elif random.random() < 0.3:
        deepest = instance.models[job.model].depth
        levels = sorted(random.randint(1, deepest) for _ in range(job.workers - 1))
        job = replace(job, depth=StaircaseDepth((*levels, deepest)))
    return replace(job, restart_us=2) if instance.horizon == "finite" and random.random() < 0.1 else job

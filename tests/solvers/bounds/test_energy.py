"""Proves that what many jobs draw, or keep in memory, times their time is a bound of the objective.

Small instances have the values of a calculation by hand; on random ones no bound is above the optimum of brute force.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from jigsaw_opt import Options, solve
from jigsaw_opt.instances import load
from jigsaw_opt.problem import (
    Cluster,
    Instance,
    Job,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    compile_instance,
)
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.bounds import BoundBudget, BoundContext, instant_bounds
from jigsaw_opt.solvers.bounds.registry import relaxations
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, tight_instance, with_licences, with_power_caps
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance


def instance(memory: int, caps: tuple[PowerCap, ...] = (), jobs: int = 3) -> Instance:
    model = Model((Segment("s", {"v": 5}, {"v": 5}, 60, 10),), state_factor=1, power_w={"v": 100})
    cluster = Cluster((Server("x", "v", 2, memory, 10**6),), power_caps=caps)
    return Instance("energy", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 1, 1) for k in range(jobs)))


def values(asked: Instance) -> dict[str, int]:
    return {bound.proof.relaxation: bound.value for bound in instant_bounds(compile_instance(asked))}


def test_blocks_under_a_cap_for_one_of_them_run_in_turn() -> None:
    asked = instance(10**6, (PowerCap("cap", ("x",), 100),))
    assert values(asked)["power_energy"] == optimum(asked) == 30


def test_jobs_of_which_a_gpu_holds_one_follow_one_another() -> None:
    """Three pairs of 70 us on four GPUs, each with room for one worker: some GPU has two of them."""
    asked = instance(75)
    cluster = replace(asked.cluster, servers=(replace(asked.cluster.servers[0], gpus=4),))
    asked = replace(asked, cluster=cluster, jobs=tuple(replace(job, workers=2, release_us=3) for job in asked.jobs))
    assert values(asked)["presence_packing"] == 3 + 2 * 70
    roomy = replace(cluster, servers=(replace(cluster.servers[0], gpu_memory=131),))
    assert "presence_packing" not in values(replace(asked, cluster=roomy))


@pytest.mark.parametrize("part", range(2))
def test_no_packing_of_presences_is_above_the_optimum(part: int) -> None:
    best_of = 0
    for seed in range(40 * part, 40 * part + 40):
        asked = tight_instance(seed, kind="data-parallel")
        best = optimum(asked)
        for bound in instant_bounds(compile_instance(asked)) if best is not None else ():
            assert bound.value <= best, (seed, bound.proof.relaxation)
            best_of += bound.proof.relaxation == "presence_packing"
    assert best_of > 0


def test_no_energy_is_above_the_optimum() -> None:
    compared = set[str]()
    for seed in range(30):
        rng = random.Random(seed)
        caps = (PowerCap("cap", ("x",), rng.choice((100, 150, 250))),) if seed % 2 else ()
        asked = instance(rng.choice((71, 80, 140)), caps, rng.randint(2, 3))
        jobs = tuple(replace(job, release_us=rng.randint(0, 6)) for job in asked.jobs)
        asked = replace(asked, jobs=jobs)
        best, found = optimum(asked), values(asked)
        assert best is not None and max(found.values()) <= best, seed
        compared.update(found)
    assert "power_energy" in compared


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_jobs_that_share_a_licence_follow_one_another(objective: Objective) -> None:
    """Three jobs of 20, 40 and 60 us with weights 3, 1 and 3, which end at 20, 120 and 80."""
    asked = instance(10**6)
    jobs = (
        replace(job, iterations=2 * k, weight=weight, licences=("x",))
        for k, (job, weight) in enumerate(zip(asked.jobs, (3, 1, 3), strict=True), 1)
    )
    cluster = replace(asked.cluster, licences={"x": 1})
    asked = replace(asked, jobs=tuple(jobs), cluster=cluster, objective=objective)
    value = 120 if objective == "makespan" else 3 * 20 + 3 * 80 + 1 * 120
    assert values(asked)["held_units"] == value == solve(asked, "cpsat", threads=1).objective


def test_no_bound_on_licences_is_above_the_optimum() -> None:
    compared = 0
    for seed in range(40):
        horizon, objective = GOALS[seed % 4 // 2 * 2]
        asked = with_licences(random_instance(seed, horizon, objective), random.Random(seed))
        best = optimum(asked) if asked.horizon == "finite" else None
        for bound in instant_bounds(compile_instance(asked)) if best is not None else ():
            assert bound.value <= best, (seed, bound.proof.relaxation)
            compared += bound.proof.relaxation == "held_units"
    assert compared > 0


@pytest.mark.parametrize("beside", [0, 2])
def test_blocks_of_task_graphs_under_a_cap_run_in_turn(beside: int) -> None:
    """On three GPUs: 100 W for 4 us on each of two slots at once, twice; a job that may be elsewhere counts nothing."""
    slots = Slot("p"), Slot("q")
    block = TaskGraphBlock("b", ("p", "q"), {"v": 4}, {"v": 100})
    free = TaskGraphBlock("b", ("p",), {"v": 9, "w": 9}, {"v": 200, "w": 200})
    jobs = (
        TaskGraphJob("a", TaskGraph(slots, (block,)), 2, 6),
        TaskGraphJob("b", TaskGraph(slots[:1], (free,)), 1),
    )
    servers = Server("x", "v", 3, 10**6, 10**6), Server("y", "w", 1, 10**6, 10**6)
    base = instance(10**6)
    cluster = Cluster(servers, power_caps=(PowerCap("cap", ("x",), 200),))
    # Two blocks of 8 us in all after the release; or with two jobs of 10 us of 100 W from the beginning, 36 / 2.
    name, value = ("mixed_power", 18) if beside else ("task_power", 14)
    asked = replace(base, cluster=cluster, jobs=(*jobs, *base.jobs[:beside]))
    context = BoundContext(compile_instance(asked))
    (relaxation,) = (each for each in relaxations() if each.name == name)
    assert [bound.value for bound in relaxation.bounds(context, 0, BoundBudget())] == [value]


def test_no_plan_of_task_graphs_under_caps_is_below_a_bound() -> None:
    compared = Counter[str]()
    for seed in range(24):
        draw, (horizon, objective) = (
            (random_task_graph_instance, random_mixed_instance)[seed % 2],
            GOALS[seed % 4 // 2 * 2],
        )
        asked = with_power_caps(draw(seed, horizon, objective), random.Random(seed))
        plan = solve(asked, "greedy", Options(threads=1)).objective
        for bound in instant_bounds(compile_instance(asked)) if plan is not None else ():
            assert plan is not None and bound.value <= plan, (seed, bound.proof.relaxation)
            compared[bound.proof.relaxation] += 1
    assert compared["task_power"] and compared["mixed_power"], compared


def test_the_power_of_a_room_is_the_best_bound_of_a_server() -> None:
    """300 W for each of eight GPUs under a cap of 1,680 W."""
    plain = load("server/plain")
    models = {name: replace(model, power_w={"v100": 300}) for name, model in plain.models.items()}
    cluster = replace(plain.cluster, power_caps=(PowerCap("room", ("s0",), 1680),))
    found = values(replace(plain, models=models, cluster=cluster))
    assert (found["critical_path"], found["power_energy"], max(found.values())) == (468_808, 633_811, 633_811)

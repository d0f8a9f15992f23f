"""Bounds: never above an optimum, and tight where the theory says so."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import critical_set, least_waiting
from jigsaw_opt.solvers.bounds.driver import instant_bounds
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WeightedJob
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from tests.oracle import optimum
from tests.random_instances import random_instance

KINDS = (("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period"))


@pytest.mark.parametrize(("horizon", "objective"), KINDS)
def test_a_bound_never_exceeds_the_optimum(horizon: str, objective: str) -> None:
    tight = 0
    for seed in range(60):
        instance = random_instance(seed, horizon, objective, 6)  # type: ignore[arg-type]
        best = optimum(instance)
        if best is not None:
            bound = lower_bound(compile_instance(instance))
            assert bound.value <= best, (seed, bound)
            tight += bound.value == best
    assert tight >= 20


def machines(gpus: int, lengths: list[int], weights: list[int] | None = None) -> Instance:
    """One-worker jobs of one iteration on identical GPUs."""
    models = {f"m{p}": Model((Segment("s", {"v": p}, {"v": 0}, 0, 0),)) for p in set(lengths)}
    jobs = tuple(Job(f"j{k}", f"m{p}", 1, 1, weight=(weights or lengths)[k]) for k, p in enumerate(lengths))
    return Instance("machines", Cluster((Server("s", "v", gpus, 1, 1),)), models, jobs)


def test_work_divides_among_gpus() -> None:
    assert lower_bound(compile_instance(machines(2, [3, 3, 2, 2, 2]))).value == 6


def test_pigeonhole_sees_two_large_workers_on_one_gpu() -> None:
    bound = lower_bound(compile_instance(machines(3, [7, 7, 7, 7])))
    assert (bound.value, bound.reason) == (14, "the largest workers, of which some GPU has several")


def test_smiths_rule_is_met_on_one_gpu() -> None:
    lengths, weights = [3, 1, 4, 2], [2, 5, 1, 3]
    instance = replace(machines(1, lengths, weights), objective="weighted_completion")
    order = sorted(range(4), key=lambda k: lengths[k] / weights[k])
    moment = total = 0
    for k in order:
        moment += lengths[k]
        total += weights[k] * moment
    assert lower_bound(compile_instance(instance)).value == total


def test_a_lone_full_job_is_its_critical_path() -> None:
    model = Model((Segment("a", {"v": 10}, {"v": 20}, 40, 0), Segment("b", {"v": 5}, {"v": 7}, 10, 0)))
    cluster = Cluster((Server("s", "v", 2, 10**6, 10**6, 3),))
    instance = Instance("lone", cluster, {"m": model}, (Job("j", "m", 2, 3, release_us=11),))
    # Bucket 1 (10 us + 6 us) is ready at 22 and hidden; bucket 2 (40 us + 6 us) is ready at the block's end, 42.
    assert lower_bound(compile_instance(instance)).value == 11 + 3 * (42 + 46) == 275
    assert (
        lower_bound(
            compile_instance(replace(instance, horizon="cyclic", objective="period", jobs=(Job("j", "m", 2, 3),)))
        ).value
        == 264
    )


def test_jobs_wider_than_a_server_load_every_link_they_need() -> None:
    model = Model((Segment("a", {"v": 1}, {"v": 0}, 100, 0),))
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**9) for k in range(2))
    cluster = Cluster(servers, ("hub",), tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(2)))
    instance = Instance("links", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 2, 1) for k in range(3)))
    bound = lower_bound(compile_instance(instance))
    assert (bound.value, bound.reason) == (301, "transfers of jobs too wide for one place over 2 links")


def test_prices_find_the_balance_of_fast_and_slow_gpus() -> None:
    model = Model((Segment("s", {"fast": 1000, "slow": 3000}, {"fast": 0, "slow": 0}, 0, 0),))
    cluster = Cluster((Server("f", "fast", 1, 1, 1), Server("s", "slow", 1, 1, 1)))
    instance = Instance("types", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 1, 1) for k in range(8)))
    assert 5900 <= lower_bound(compile_instance(instance)).value <= 6000


def test_a_class_of_gpus_that_only_some_jobs_can_use_is_priced_alone() -> None:
    models = {
        "any": Model((Segment("s", {"fast": 10, "slow": 10}, {"fast": 0, "slow": 0}, 0, 0),)),
        "fast": Model((Segment("s", {"fast": 100}, {"fast": 0}, 0, 0),)),
    }
    cluster = Cluster((Server("f", "fast", 1, 1, 1), Server("s", "slow", 3, 1, 1)))
    jobs = (Job("a", "fast", 1, 1), Job("b", "fast", 1, 1, release_us=50), Job("c", "any", 1, 1))
    bound = lower_bound(compile_instance(Instance("types", cluster, models, jobs)))
    assert (bound.value, bound.reason) == (200, "GPU work on fast")


def test_wide_jobs_crowd_onto_slow_gpus() -> None:
    model = Model((Segment("s", {"fast": 10, "slow": 40}, {"fast": 0, "slow": 0}, 0, 0),))
    servers = (Server("f", "fast", 1, 1, 10**9), Server("s", "slow", 1, 1, 10**9))
    cluster = Cluster(servers, (), (Link("l", ("f", "s"), 10**9),))
    instance = Instance("crowd", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 2, 1) for k in range(3)))
    bound = lower_bound(compile_instance(instance))
    assert (bound.value, bound.reason) == (120, "GPU work on slow")


def test_jacksons_rule_keeps_late_work_and_long_tails_apart() -> None:
    early, late = ResourceDemand(0, 40, 60, 0), ResourceDemand(50, 40, 0, 0)
    # Two machines: 20 us of work each; the early job owes 60 us afterwards, the late one starts at 50.
    assert critical_set(Resource(2, (early, None, late), "")) == [0]
    assert critical_set(Resource(2, (late,), "")) == [0]
    # Without the long tail both together decide: 40 us of work for two machines from 0 on.
    assert critical_set(Resource(2, (ResourceDemand(0, 40, 0, 0), None, ResourceDemand(10, 40, 0, 0)), "")) == [0, 2]


def test_machines_in_parallel_finish_later_than_one_fast_machine() -> None:
    instance = replace(machines(2, [2, 2, 2, 2], [1, 1, 1, 1]), objective="weighted_completion")
    assert lower_bound(compile_instance(instance)).value == 2 + 2 + 4 + 4


@pytest.mark.parametrize("count", [1, 95, 96, 150, 400])
def test_on_one_machine_the_bound_is_smiths_rule_at_every_size(count: int) -> None:
    draw = random.Random(count)
    lengths, weights = ([draw.randint(1, most) for _ in range(count)] for most in (2000, 50))
    instance = replace(machines(1, lengths, weights), objective="weighted_completion")
    now = least = 0
    for length, weight in sorted(zip(lengths, weights, strict=True), key=lambda each: Fraction(each[0], each[1])):
        now += length
        least += weight * now
    assert lower_bound(compile_instance(instance)).value == least


def test_own_ends_and_capacity_bound_weighted_ends_together() -> None:
    # On one machine the second and the third job wait for each other; the first has a long way to go alone.
    alone, short = WeightedJob(1, 100, ResourceDemand(0, 2, 0, 4)), WeightedJob(1, 5, ResourceDemand(0, 5, 0, 25))
    found = least_waiting([alone, short, short], 1)
    assert -(-found.amount // found.denominator) >= 5


@pytest.mark.parametrize(("loads", "gpus", "least"), (([7, 6, 5, 4, 3], 2, 13), ([5, 5, 5, 1], 2, 10), ([9], 4, 9)))
def test_packing_of_whole_workers(loads: list[int], gpus: int, least: int) -> None:
    bound = lower_bound(compile_instance(machines(gpus, loads)))
    best = min(
        max(sum(p for p, g in zip(loads, where, strict=True) if g == k) for k in range(gpus))
        for where in product(range(gpus), repeat=len(loads))
    )
    assert bound.value == least == best


def test_jobs_wider_than_a_rack_load_the_uplinks() -> None:
    model = Model((Segment("a", {"v": 1}, {"v": 0}, 120, 0),))
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**9) for k in range(4))
    down = tuple(Link(f"d{k}", (f"s{k}", f"r{k // 2}"), 10**9) for k in range(4))
    up = tuple(Link(f"u{k}", (f"r{k}", "spine"), 10**6) for k in range(2))
    cluster = Cluster(servers, ("r0", "r1", "spine"), (*down, *up))
    instance = Instance("racks", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 3, 1) for k in range(2)))
    # Three workers: 2 * 2/3 * 120 bytes at a byte per microsecond, over both uplinks, one job after the other.
    bound = lower_bound(compile_instance(instance))
    assert (bound.value, bound.reason) == (1 + 2 * 160, "transfers of jobs too wide for one place over 2 links")


def test_a_link_that_splits_the_cluster_is_a_resource() -> None:
    model = Model((Segment("a", {"v": 1}, {"v": 0}, 300, 0),))
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**9) for k in range(4))
    links = tuple(Link(f"l{k}", (f"s{k}", f"s{k + 1}"), 10**6 if k == 1 else 10**8) for k in range(3))
    instance = Instance(
        "line", Cluster(servers, (), links), {"m": model}, tuple(Job(f"j{k}", "m", 3, 1) for k in range(2))
    )
    bound = lower_bound(compile_instance(instance))
    assert (bound.value, bound.reason) == (1 + 2 * 400, "transfers over link l1")


@pytest.mark.parametrize(("horizon", "objective"), KINDS)
def test_bounds_rise_from_nothing_to_the_best_whether_there_is_a_plan_or_not(horizon: str, objective: str) -> None:
    infeasible = 0
    for seed in range(80):
        operations = compile_instance(random_instance(seed, horizon, objective, 9))  # type: ignore[arg-type]
        values = [bound.value for bound in instant_bounds(operations)]
        assert values[0] == 0 and values[-1] == lower_bound(operations).value
        assert values == sorted(values)
        infeasible += bool(certain_causes(operations))
    assert infeasible >= 10


def test_a_thousand_jobs_are_not_expanded() -> None:
    model = Model(tuple(Segment(f"s{k}", {"v": 10 + k}, {"v": 20}, 10**6, 0) for k in range(6)))
    servers = tuple(Server(f"s{k}", "v", 8, 10**9, 10**9) for k in range(128))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**8) for k in range(128))
    depths: tuple[Depth, ...] = (StaircaseDepth(), FreeDepth(), FullDepth())
    jobs = tuple(Job(f"j{k}", "m", 1 + 3 * (k % 4), 10**9 + k, k, 1 + k % 7, depths[k % 3]) for k in range(1000))
    operations = compile_instance(Instance("large", Cluster(servers, ("hub",), links), {"m": model}, jobs))
    work = lower_bound(operations)
    assert work.value > 10**9 * 10**3 / 4
    assert lower_bound(replace(operations, objective="weighted_completion")).value > work.value

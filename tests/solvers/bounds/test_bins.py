"""Stronger bounds: never above an optimum, above the cheap ones where bins are hard to fill, exact in integers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from jigsaw_opt.instances import catalogue
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, PowerCap, Segment, Server, compile_instance
from jigsaw_opt.solvers.bounds import Bound, lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.packing.column_generation import (
    CELLS,
    Item,
    KnapsackBins,
    Packing,
    PackingTest,
    best_pattern,
)
from jigsaw_opt.solvers.bounds.packing.placement_loads import PlacementTest
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext
from tests.oracle import optimum
from tests.random_instances import MICRO, random_instance
from tests.refusals import carries


def rising(instance: Instance) -> list[Bound]:
    """The cheap bound, then all stronger ones."""
    operations = compile_instance(instance)
    cheap = lower_bound(operations)
    return [cheap, *stronger_bounds(operations, cheap.value)]


@pytest.mark.parametrize(("horizon", "objective"), (("finite", "makespan"), ("cyclic", "period")))
def test_no_bound_exceeds_the_optimum(horizon: str, objective: str) -> None:
    compared = 0
    for seed in range(60):
        instance = random_instance(seed, horizon, objective, 6)  # type: ignore[arg-type]
        best = optimum(instance)
        if best is not None:
            bounds = [bound.value for bound in rising(instance)]
            assert bounds == sorted(set(bounds))
            assert bounds[-1] <= best, (seed, bounds)
            compared += 1
    assert compared >= 40


@pytest.mark.slow
def test_no_bound_exceeds_the_best_plan_known_of_a_tiny_instance() -> None:
    for name in catalogue.names("tiny"):
        instance = catalogue.load(name)
        best = catalogue.best_known(name)
        if instance.objective != "weighted_completion":
            assert best is not None
            assert best.objective is not None
            assert rising(instance)[-1].value <= best.objective, name


def star(payloads: list[int], servers: int = 3, gpus: int = 2) -> Instance:
    """Full jobs of two workers too many for one server; a transfer takes about the payload in microseconds."""
    hosts = tuple(Server(f"s{k}", "v", gpus, 10**9, 10**9) for k in range(servers))
    links = tuple(Link(f"l{k}", (f"s{k}", "hub"), MICRO) for k in range(servers))
    models = {f"m{p}": Model((Segment("a", {"v": 1}, {"v": 0}, p, 0),)) for p in payloads}
    jobs = tuple(Job(f"j{k}", f"m{p}", 2, 1) for k, p in enumerate(payloads))
    return Instance("star", Cluster(hosts, ("hub",), links), models, jobs, "cyclic", "period")


@pytest.mark.parametrize("unit", [1, 2**26])
def test_the_least_load_of_all_placements_is_a_bound_in_whole_units_of_time(unit: int) -> None:
    # Of 7, 5, 5 and 5 no two sums are 11, and no two workers stand for this.
    times = [7, 5, 5, 5]
    models = {f"m{k}": Model((Segment("a", {"v": unit * time}, {"v": 0}, 1, 0),)) for k, time in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1) for k in range(4))
    cluster = Cluster((Server("s", "v", 2, 10**9, 10**9),))
    operations = compile_instance(Instance("four", cluster, models, jobs, "finite", "makespan"))
    assert lower_bound(operations).value == 11 * unit
    test = PlacementTest(BoundContext(operations))
    coarse = -(-22 * unit // 2**26)
    assert 12 * unit - 4 * coarse < test.least(0, 22 * unit, 2, 1.0, BoundBudget()) <= 12 * unit
    assert test.refutes(12 * unit - 4 * coarse, BoundBudget()) is not None
    assert test.refutes(12 * unit, BoundBudget()) is None


def test_transfers_that_do_not_share_a_link_within_a_period_need_links_of_their_own() -> None:
    # Four jobs on three links, two links each, none of which holds a third job: eight halves on three links.
    instance = star([100, 100, 100, 100], gpus=1)
    cheap, *stronger = rising(instance)
    assert cheap.value == 267 and carries(cheap.reason, "transfers", "3 links")
    assert stronger[-1].value == 300
    assert carries(stronger[-1].reason, "packed", "3 places")


def test_servers_of_different_power_caps_are_no_equivalent_bins() -> None:
    # On the first server no block keeps the cap, so both jobs are on the two others.
    instance = replace(star([5, 5]), horizon="finite", objective="makespan")
    cluster = replace(instance.cluster, power_caps=(PowerCap("room", ("s0",), 100),))
    models = {name: replace(model, power_w={"v": 300}) for name, model in instance.models.items()}
    jobs = tuple(replace(job, workers=3) for job in instance.jobs)
    capped = replace(instance, cluster=cluster, models=models, jobs=jobs)
    assert rising(capped)[-1].value <= 15, "a plan of this length places both jobs on them"


def test_memory_that_leaves_room_for_few_workers_makes_some_job_cross() -> None:
    # A GPU has room for one worker, so one of two pairs has its workers on both servers, and its transfer on the link.
    model = Model((Segment("a", {"v": 10}, {"v": 0}, 50, 0),), state_factor=1)
    servers = (Server("s0", "v", 3, 60, 10**9), Server("s1", "v", 1, 60, 10**9))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), MICRO),))
    jobs = tuple(Job(f"j{k}", "m", 2, 1) for k in range(2))
    instance = Instance("memory", cluster, {"m": model}, jobs, "cyclic", "period")
    cheap, *stronger = rising(instance)
    assert cheap.value == 11
    assert carries(stronger[-1].reason, "work", "memory", "every placement")
    assert stronger[-1].value == 60
    # On the finite horizon both pairs may be on the large server: each a block of 10 and a transfer of 1.
    assert rising(replace(instance, horizon="finite", objective="makespan"))[-1].value <= 22


def test_workers_that_share_a_gpu_wait_for_its_last_exchange() -> None:
    # Three jobs on two GPUs of one server: two share them, and whichever ends last still has its exchange to do.
    model = Model((Segment("a", {"v": 10}, {"v": 0}, 50, 0),), state_factor=1)
    cluster = Cluster((Server("s", "v", 2, 10**6, MICRO),))
    instance = Instance("tails", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 2, 1) for k in range(3)))
    assert rising(instance)[-1].value == optimum(instance) == 80


@pytest.mark.parametrize("unit", (1, 2**20, 2**45))
def test_large_numbers_are_rounded_so_that_the_bound_stays_below_the_optimum(unit: int) -> None:
    # The same instance with times, memory and latencies that many times as large.
    model = Model((Segment("a", {"v": 10 * unit}, {"v": 0}, 50 * unit, 0),), state_factor=1)
    fast = min(10**9 * unit, 2**53 - 1)
    servers = (Server("s0", "v", 3, 60 * unit, fast), Server("s1", "v", 1, 60 * unit, fast))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), MICRO),))
    jobs = tuple(Job(f"j{k}", "m", 2, 1) for k in range(2))
    instance = Instance("large", cluster, {"m": model}, jobs, "cyclic", "period")
    found = rising(instance)[-1].value
    assert 59.9 * unit <= found <= 60 * unit


def test_it_ends_early_and_repeats_under_a_limit_of_work() -> None:
    operations = compile_instance(star([100, 90, 80, 70, 60, 50, 40], gpus=1))
    start = lower_bound(operations).value
    assert list(stronger_bounds(operations, start, work=0)) == []
    assert list(stronger_bounds(operations, start, stop=lambda: True)) == []
    assert list(stronger_bounds(operations, start, work=0.01)) == list(stronger_bounds(operations, start, work=0.01))


@pytest.mark.parametrize("capacity", (0, 7, 23, CELLS, CELLS * 5 + 3))
def test_a_knapsack_is_never_underestimated(capacity: int) -> None:
    scale = max(1, capacity // 23)
    items = [Item(5 * scale, 2, 0), Item(6 * scale, 1, 2 * scale), Item(3 * scale, 3, scale), Item(0, 2, 0)]
    values = [7, 9, 4, 1]
    found = best_pattern(items, values, capacity)
    best = 0
    for copies in product(*(range(item.copies + 1) for item in items)):
        head = min((item.head for item, count in zip(items, copies, strict=True) if count), default=0)
        if head + sum(item.size * count for item, count in zip(items, copies, strict=True)) <= capacity:
            best = max(best, sum(value * count for value, count in zip(values, copies, strict=True)))
    assert found.value >= best
    assert found.value == sum(values[k] * count for k, count in found.copies.items())
    if capacity <= CELLS:
        assert found.value == best


def test_a_refutation_is_an_inequality_between_integers() -> None:
    # Three bins of 10 hold at most one operation of 6 each, so four operations of 6 do not fit, though 24 < 30.
    packing = Packing((KnapsackBins(3, 10, {0: Item(6, 4, 0), 1: Item(4, 2, 0)}),), (4, 2), (("a", "b"), ("c",)))
    test = PackingTest()
    found = test.refutes(packing, BoundBudget())
    assert found is not None
    assert test.refutes(packing, BoundBudget()) == found
    prices, (pattern,) = found
    assert pattern == packing.bins[0].best(prices)
    assert 3 * pattern.value < 4 * prices[0] + 2 * prices[1]
    assert packing.too_much((1, 0), packing.patterns((1, 0))) and not packing.too_much((0, 1), packing.patterns((0, 1)))
    assert test.refutes(replace(packing, demands=(3, 3)), BoundBudget()) is None

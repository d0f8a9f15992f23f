"""Bounds: never above an optimum, and tight where the theory says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Link, Model, Segment, Server, StaircaseDepth, cut
from jigsaw_opt.problem.critical import least_work_us, tail_us
from jigsaw_opt.solvers.bounds import lower_bound
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
            bound = lower_bound(cut(instance))
            assert bound.value <= best, (seed, bound)
            tight += bound.value == best
    assert tight >= 20


def machines(gpus: int, lengths: list[int], weights: list[int] | None = None) -> Instance:
    """One-worker jobs of one iteration on identical GPUs."""
    models = {f"m{p}": Model((Segment("s", {"v": p}, {"v": 0}, 0, 0),)) for p in set(lengths)}
    jobs = tuple(Job(f"j{k}", f"m{p}", 1, 1, weight=(weights or lengths)[k]) for k, p in enumerate(lengths))
    return Instance("machines", Cluster((Server("s", "v", gpus, 1, 1),)), models, jobs)


def test_work_divides_among_gpus() -> None:
    assert lower_bound(cut(machines(2, [3, 3, 2, 2, 2]))).value == 6


def test_pigeonhole_sees_two_large_workers_on_one_gpu() -> None:
    bound = lower_bound(cut(machines(3, [7, 7, 7, 7])))
    assert (bound.value, bound.reason) == (14, "the largest workers, of which some GPU has several")


def test_smiths_rule_is_met_on_one_gpu() -> None:
    lengths, weights = [3, 1, 4, 2], [2, 5, 1, 3]
    instance = replace(machines(1, lengths, weights), objective="weighted_completion")
    order = sorted(range(4), key=lambda k: lengths[k] / weights[k])
    moment = total = 0
    for k in order:
        moment += lengths[k]
        total += weights[k] * moment
    assert lower_bound(cut(instance)).value == total


def test_a_lone_full_job_is_its_critical_path() -> None:
    model = Model((Segment("a", {"v": 10}, {"v": 20}, 40, 0), Segment("b", {"v": 5}, {"v": 7}, 10, 0)))
    cluster = Cluster((Server("s", "v", 2, 10**6, 10**6, 3),))
    instance = Instance("lone", cluster, {"m": model}, (Job("j", "m", 2, 3, release_us=11),))
    # Bucket 1 (10 us + 6 us) is ready at 22 and hidden; bucket 2 (40 us + 6 us) is ready at the block's end, 42.
    assert lower_bound(cut(instance)).value == 11 + 3 * (42 + 46) == 275
    assert (
        lower_bound(cut(replace(instance, horizon="cyclic", objective="period", jobs=(Job("j", "m", 2, 3),)))).value
        == 264
    )


def test_jobs_wider_than_a_server_load_every_link_they_need() -> None:
    model = Model((Segment("a", {"v": 1}, {"v": 0}, 100, 0),))
    servers = tuple(Server(f"s{k}", "v", 1, 10**6, 10**9) for k in range(2))
    cluster = Cluster(servers, ("hub",), tuple(Link(f"l{k}", (f"s{k}", "hub"), 10**6) for k in range(2)))
    instance = Instance("links", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 2, 1) for k in range(3)))
    bound = lower_bound(cut(instance))
    assert (bound.value, bound.reason) == (301, "transfers of jobs too wide for one place over 2 links")


def test_prices_find_the_balance_of_fast_and_slow_gpus() -> None:
    model = Model((Segment("s", {"fast": 1000, "slow": 3000}, {"fast": 0, "slow": 0}, 0, 0),))
    cluster = Cluster((Server("f", "fast", 1, 1, 1), Server("s", "slow", 1, 1, 1)))
    instance = Instance("types", cluster, {"m": model}, tuple(Job(f"j{k}", "m", 1, 1) for k in range(8)))
    assert 5900 <= lower_bound(cut(instance)).value <= 6000


def test_least_work_of_free_levels_is_convex() -> None:
    cluster = Cluster((Server("s", "v", 3, 1, 1),))
    model = Model(tuple(Segment(f"s{k}", {"v": 1}, {"v": 10}, 0, 0) for k in range(3)))
    jobs = (Job("free", "m", 3, 2, depth=FreeDepth(mean_depth="2/3")), Job("stairs", "m", 3, 2, depth=StaircaseDepth()))
    free, stairs = cut(Instance("i", cluster, {"m": model}, jobs)).jobs
    # Both need 12 levels in all: 18 forward units and 10 for each level.
    assert least_work_us(free, (13, 23, 33)) == least_work_us(stairs, (13, 23, 33)) == 2 * (13 + 23 + 33)


def test_tail_follows_the_transfers() -> None:
    assert tail_us((4, 9), (3, 5), 1) == 12
    assert tail_us((4, 9), (3, 5), 2) == 14
    assert tail_us((4, 9), (), 2) == 9

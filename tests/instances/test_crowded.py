"""The family `crowded`: as varied as its page says, its load decides, and its memory has room for a plan."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, encode_instance, instance_sha256
from jigsaw_opt.instances import families, generate, sets
from jigsaw_opt.instances.crowded import crowded, shortened
from jigsaw_opt.problem import FreeDepth, FullDepth, Instance, StaircaseDepth, compile_instance
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

SEEDS = range(1000, 1048)
RECIPES = {seed: crowded(seed, {}) for seed in SEEDS}


def gpus(seed: int) -> int:
    return RECIPES[seed].servers * RECIPES[seed].gpus


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    return [generate("crowded", seed) for seed in SEEDS if gpus(seed) <= 128]


def test_it_is_a_family_without_a_bundled_set() -> None:
    assert "crowded" in families()
    assert "crowded" not in sets()


def test_24_seeds_in_succession_have_every_objective_at_every_size() -> None:
    cases = [(RECIPES[seed].objective, gpus(seed)) for seed in SEEDS]
    assert len(set(cases[:24])) == 24
    assert cases[:24] == cases[24:]
    assert {size for _, size in cases} == {8 << k for k in range(8)}


def test_periods_are_asked_for_where_the_horizon_is_cyclic(instances: list[Instance]) -> None:
    assert {(instance.objective, instance.horizon) for instance in instances} == {
        ("makespan", "finite"),
        ("weighted_completion", "finite"),
        ("period", "cyclic"),
    }


def test_every_instance_mixes_all_depth_rules(instances: list[Instance]) -> None:
    for instance in instances:
        assert {job.depth for job in instance.jobs} == set(RECIPES[1000].depths), instance.name
        assert {type(depth) for depth in RECIPES[1000].depths} == {FullDepth, StaircaseDepth, FreeDepth}


def test_the_largest_size_has_all_its_gpus_and_workers() -> None:
    instance = generate("crowded", next(seed for seed in SEEDS if gpus(seed) == 1024))
    assert instance.cluster.gpu_count == 1024
    assert 2048 <= sum(job.workers for job in instance.jobs) <= 6144


def test_workers_iterations_types_and_memory_are_as_varied_as_the_page_says(instances: list[Instance]) -> None:
    loads = [sum(job.workers for job in instance.jobs) / instance.cluster.gpu_count for instance in instances]
    assert min(loads) < 2.5
    assert max(loads) > 5.5
    assert all(1.9 < load <= 6 for load in loads)
    assert {job.iterations for instance in instances for job in instance.jobs} == set(range(1, 13))
    assert {len({server.gpu_type for server in instance.cluster.servers}) for instance in instances} == {1, 2, 3}
    assert {recipe.spare_memory for recipe in RECIPES.values()} == {5, 10, 25, 50, 100}


def alone_us(instance: Instance) -> int:
    """Least time of the job that takes longest on an empty cluster."""
    operations = compile_instance(instance)
    sites = (critical.sites(operations, job, critical.usable_gpus(operations, job)) for job in operations.jobs)
    return max(critical.least_span_us(job, where) for job, where in zip(operations.jobs, sites, strict=True))


def mean_work_us(instance: Instance) -> float:
    """Least work of all jobs, shared by all GPUs."""
    work = 0.0
    for job in compile_instance(instance).jobs:
        times = {t: critical.least_work_us(job, job.blocks[0].duration_us[t]) for t in job.gpu_types}
        work += 1 / sum(server.gpus / times[server.gpu_type] for server in instance.cluster.servers)
    return work


def test_no_single_job_decides(instances: list[Instance]) -> None:
    shares = [alone_us(instance) / mean_work_us(instance) for instance in instances]
    assert median(shares) <= 0.61
    assert max(shares) <= 0.85


def test_the_load_is_what_bounds(instances: list[Instance]) -> None:
    for instance in instances:
        bound = lower_bound(compile_instance(replace(instance, objective="makespan", horizon="finite")))
        assert "critical path" not in bound.reason, instance.name
        assert alone_us(instance) <= 0.85 * bound.value, instance.name


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if gpus(seed) <= 32][:9])
def test_greedy_finds_a_plan_in_the_memory_that_there_is(seed: int) -> None:
    instance = generate("crowded", seed)
    plan = solve(instance, "greedy", Options(threads=1)).plan
    assert plan is not None and check(instance, plan) == ()


def test_same_seed_and_size_same_instance() -> None:
    first, again = (instance_sha256(generate("crowded", 1013)) for _ in range(2))
    other = instance_sha256(generate("crowded", 1013 + 24))
    small, small_again = (generate("crowded", 1013, servers=2, gpus=2) for _ in range(2))
    assert first == again != other
    assert small == small_again
    assert small.cluster.gpu_count == 4
    assert decode_instance(encode_instance(small)) == small


@pytest.mark.parametrize("servers", [1, 3])
def test_sizes_that_nobody_draws_still_give_instances(servers: int) -> None:
    instance = generate("crowded", 1, servers=servers, gpus=1, load=100)
    assert (instance.cluster.gpu_count, sum(job.workers for job in instance.jobs)) == (servers, servers)
    assert max(job.workers for job in instance.jobs) <= min(2, servers)


def test_the_longest_job_loses_iterations_down_to_one() -> None:
    instance = generate("crowded", 1008)
    cut_down, short = shortened(instance, 0)
    before, after = ([job.iterations for job in made.jobs] for made in (instance, cut_down))
    assert not short
    assert min(after) == 1
    assert sum(after) < sum(before)
    assert all(fewer <= more for fewer, more in zip(after, before, strict=True))
    assert shortened(instance, 10_000) == (instance, True)

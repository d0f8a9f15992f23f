"""Families: reproducible, of the size, load and variety that their page promises, with a plan by construction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, encode_instance, instance_sha256
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.families import Draft, HiddenPlace, crowded, draft, shortened
from jigsaw_opt.instances.gpus import server as gpu_server
from jigsaw_opt.instances.recipes import FAMILIES
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem import Channel, Cluster, Instance, OperationGraph, Operations, Plan, Routes, compile_instance
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.timetable import JobDecision, assemble, objective_of
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.solvers.bounds import lower_bound
from tests.refusals import misuse

GPUS = {"tiny": (2, 4), "server": (8, 16), "rack": (32, 64), "pod": (256, 256), "cluster": (1024, 1024)}
CASES = [(family, seed) for family, recipes in FAMILIES.items() for seed in range(len(recipes))]


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_size_and_load_are_as_the_recipe_says(family: str, seed: int) -> None:
    instance, recipe = generate(family, seed), FAMILIES[family][seed]
    low, high = GPUS[family]
    assert low <= instance.cluster.gpu_count <= high
    assert sum(job.workers for job in instance.jobs) == recipe.load * instance.cluster.gpu_count // 100
    assert (instance.horizon == "cyclic") == (recipe.objective == "period")
    assert {server.gpu_type for server in instance.cluster.servers} == set(recipe.types)
    assert set(instance.models) == {job.model for job in instance.jobs}


@pytest.mark.parametrize(("family", "seed"), [*CASES, *(("crowded", seed) for seed in range(1008, 1020))])
def test_jobs_can_run_one_after_the_other_in_their_hidden_places(family: str, seed: int) -> None:
    made = draft(family, seed)
    assert check(made.instance, _serial_plan(made)) == ()


LINK_BOUND = [case for case in CASES if FAMILIES[case[0]][case[1]].name.endswith("link-bound") and case[0] != "tiny"]


@pytest.mark.parametrize(("family", "seed"), LINK_BOUND)
def test_links_are_the_bottleneck_where_the_recipe_says_so(family: str, seed: int) -> None:
    made, plain = draft(family, seed), draft(family, 0)
    assert _link_work(made) > _gpu_work(made)
    assert _link_work(plain) < _link_work(made)


@pytest.mark.parametrize(("family", "seed"), [case for case in CASES if FAMILIES[case[0]][case[1]].tight_memory])
def test_tight_memory_has_no_byte_to_spare_in_any_server(family: str, seed: int) -> None:
    made = draft(family, seed)
    # On the cyclic horizon all jobs are present all the time.
    jobs = tuple(replace(job, release_us=0) for job in made.instance.jobs)
    made = Draft(replace(made.instance, jobs=jobs, horizon="cyclic", objective="period"), made.places)
    cluster = made.instance.cluster
    assert check(made.instance, _serial_plan(made)) == ()
    for index, server in enumerate(cluster.servers):
        less = replace(server, gpu_memory=server.gpu_memory - 1)
        servers = (*cluster.servers[:index], less, *cluster.servers[index + 1 :])
        smaller = Draft(replace(made.instance, cluster=replace(cluster, servers=servers)), made.places)
        assert {violation.rule for violation in check(smaller.instance, _serial_plan(smaller))} == {"memory"}


def test_changes_that_do_not_go_with_the_recipe_still_give_a_valid_instance() -> None:
    releases = [recipe.releases for recipe in FAMILIES["rack"]].index(True)
    cyclic = generate("rack", releases, objective="period")
    smallest = generate("tiny", 0, servers=1, gpus=1, load=1, topology="ring")
    for instance in (cyclic, smallest):
        assert decode_instance(encode_instance(instance)) == instance
    assert [job.workers for job in smallest.jobs] == [1]


@pytest.mark.parametrize(
    ("family", "changes", "expected", "named"),
    [
        ("village", {}, "unknown-name family", "'village'"),
        ("tiny", {"gpu": 3}, "unknown-option", "gpu"),
        ("server", {"load": 9000}, "does-not-fit", "load"),
    ],
)
def test_what_cannot_be_made_is_refused(family: str, changes: dict[str, int], expected: str, named: str) -> None:
    with misuse(expected, naming=[named]):
        generate(family, 0, **changes)


def _serial_plan(made: Draft) -> Plan:
    """Job after job and iteration after iteration, transfers behind all blocks."""
    operations = compile_instance(made.instance)
    decisions, now = [], 0
    for job, place in zip(operations.jobs, made.places, strict=True):
        decision, now = _serial_job(operations, job, place, max(now, job.release_us))
        decisions.append(decision)
    jobs = assemble(operations, decisions)
    period = now if made.instance.horizon == "cyclic" else None
    objective = objective_of(operations, jobs, period)
    return Plan.of_jobs(made.instance.name, instance_sha256(made.instance), "feasible", objective, 0, period, jobs)


def _serial_job(operations: Operations, job: OperationGraph, place: HiddenPlace, start: int) -> tuple[JobDecision, int]:
    channel = operations.routes.channel(Counter(server for server, _ in place.gpus))
    assert channel is not None
    block = max(job.blocks[0].duration_us[_type(operations.instance, gpu[0])][-1] for gpu in place.gpus)
    spans = [
        job.transfer_us(t.bucket, sum(level >= t.bucket for level in place.levels), channel) for t in job.transfers
    ]
    length = block + sum(spans)
    starts = [start + i * length for i in range(job.iterations)]
    offsets = list(accumulate(spans, initial=block))[:-1]
    decision = JobDecision(
        place.gpus,
        [place.levels] * job.iterations,
        [[begin] * job.slots for begin in starts],
        [[begin + offset for offset in offsets] for begin in starts],
    )
    return decision, start + job.iterations * length


def _type(instance: Instance, server: int) -> str:
    return instance.cluster.servers[server].gpu_type


def _link_work(made: Draft) -> float:
    """Mean work of a server's link that no placement avoids: a job wider than a server crosses two of them."""
    servers, links = made.instance.cluster.servers, made.instance.cluster.links
    if not links:
        return 0
    channel = Channel((), links[0].bandwidth, 0)
    work = 0
    for job, place in zip(compile_instance(made.instance).jobs, made.places, strict=True):
        if job.slots > servers[0].gpus:
            counts = [sum(level >= transfer.bucket for level in place.levels) for transfer in job.transfers]
            work += job.iterations * sum(job.transfer_us(b, count, channel) for b, count in enumerate(counts, 1))
    return 2 * work / len(servers)


def _gpu_work(made: Draft) -> float:
    """Mean work of a GPU in the hidden places."""
    work = 0
    for job, place in zip(compile_instance(made.instance).jobs, made.places, strict=True):
        for gpu, level in zip(place.gpus, place.levels, strict=True):
            work += job.iterations * job.blocks[0].duration_us[_type(made.instance, gpu[0])][level - 1]
    return work / made.instance.cluster.gpu_count


@pytest.mark.parametrize("changes", [{"gpus": 2**53 - 1}, {"servers": 10**9}, {"load": 10**9}])
def test_sizes_are_judged_before_anything_is_drawn(changes: dict[str, int]) -> None:
    with misuse("too-large", naming=["1,000,000 GPUs"]):
        generate("rack", 1, **changes)


SEEDS = range(1000, 1024)
RECIPES = {seed: crowded(seed, {}) for seed in SEEDS}


def gpus(seed: int) -> int:
    return RECIPES[seed].servers * RECIPES[seed].gpus


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    return [generate("crowded", seed) for seed in SEEDS if gpus(seed) <= 64]


def test_the_largest_size_has_all_its_gpus_and_workers() -> None:
    instance = generate("crowded", next(seed for seed in SEEDS if gpus(seed) == 1024))
    assert instance.cluster.gpu_count == 1024
    assert 2048 <= sum(job.workers for job in instance.jobs) <= 6144


def test_workers_iterations_types_and_memory_are_as_varied_as_the_page_says(instances: list[Instance]) -> None:
    loads = [sum(job.workers for job in instance.jobs) / instance.cluster.gpu_count for instance in instances]
    assert min(loads) < 2.5
    assert max(loads) > 5.5
    assert all(1.9 < load <= 6 for load in loads)
    cases = {(RECIPES[seed].objective, gpus(seed)) for seed in SEEDS}
    assert len(cases) == len(SEEDS) and {size for _, size in cases} == {8 << k for k in range(8)}
    assert {type(depth) for depth in RECIPES[1000].depths} == {FullDepth, StaircaseDepth, FreeDepth}
    assert all({job.depth for job in each.jobs} == set(RECIPES[1000].depths) for each in instances)
    assert {job.iterations for instance in instances for job in instance.jobs} == set(range(1, 13))
    assert {len({server.gpu_type for server in instance.cluster.servers}) for instance in instances} == {1, 2, 3}
    assert {recipe.spare_memory for recipe in RECIPES.values()} == {5, 10, 25, 50, 100}


def alone_us(instance: Instance) -> int:
    """Least time of the job that takes longest on an empty cluster."""
    operations = compile_instance(instance)
    sites = (critical.sites(operations, job, critical.usable_gpus(operations, job)) for job in operations.jobs)
    return max(critical.least_span_us(job, where) for job, where in zip(operations.jobs, sites, strict=True))


def test_the_load_is_what_bounds(instances: list[Instance]) -> None:
    for instance in instances:
        bound = lower_bound(compile_instance(replace(instance, objective="makespan", horizon="finite")))
        assert "critical path" not in bound.reason, instance.name
        assert alone_us(instance) <= 0.85 * bound.value, instance.name


def test_same_seed_and_size_same_instance() -> None:
    first, again = (instance_sha256(generate("crowded", 1013)) for _ in range(2))
    other = instance_sha256(generate("crowded", 1013 + 24))
    small, small_again = (generate("crowded", 1013, servers=2, gpus=2) for _ in range(2))
    assert first == again != other
    assert small == small_again
    assert small.cluster.gpu_count == 4
    assert decode_instance(encode_instance(small)) == small


def test_the_longest_job_loses_iterations_down_to_one() -> None:
    instance = generate("crowded", 1008)
    cut_down, short = shortened(instance, 0)
    before, after = ([job.iterations for job in made.jobs] for made in (instance, cut_down))
    assert not short
    assert min(after) == 1
    assert sum(after) < sum(before)
    assert all(fewer <= more for fewer, more in zip(after, before, strict=True))
    assert shortened(instance, 10_000) == (instance, True)


def _cluster(topology: str, count: int) -> Cluster:
    return TOPOLOGIES[topology]([gpu_server(f"s{i}", "v100", 2) for i in range(count)], 1000, 3)


@pytest.mark.parametrize(
    ("topology", "count", "hops"),
    [("star", 5, 2), ("line", 4, 3), ("ring", 4, 1), ("ring", 2, 1), ("tree", 2, 4), ("tree", 16, 4)],
)
def test_hops_between_the_first_and_the_last_server(topology: str, count: int, hops: int) -> None:
    route = Routes(_cluster(topology, count)).between(0, count - 1)
    assert route is not None
    assert len(route) == hops


def test_racks_hold_eight_servers_and_share_a_faster_uplink() -> None:
    cluster = _cluster("tree", 32)
    assert cluster.switches == ("rack0", "rack1", "rack2", "rack3", "spine")
    routes = Routes(cluster)
    assert len(routes.between(0, 7) or ()) == 2
    assert len(routes.between(7, 8) or ()) == 4
    assert {link.bandwidth for link in cluster.links if "spine" in link.ends} == {4000}

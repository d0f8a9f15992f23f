"""Families: reproducible, of the guaranteed size and load, and with a plan by construction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import decode_instance, encode_instance, instance_sha256
from jigsaw_opt.instances import generate
from jigsaw_opt.instances.families import Draft, HiddenPlace, draft
from jigsaw_opt.instances.recipes import FAMILIES
from jigsaw_opt.problem import Channel, Instance, OperationGraph, Operations, Plan, compile_instance
from jigsaw_opt.problem.compiled.timetable import JobDecision, assemble, objective_of
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


def test_same_seed_same_instance_and_another_seed_another() -> None:
    rounds = len(FAMILIES["tiny"])
    first, again, other = (instance_sha256(generate("tiny", seed)) for seed in (3, 3, 3 + rounds))
    assert first == again != other


def test_recipes_can_be_changed() -> None:
    instance = generate("server", 0, servers=3, gpus=2, load=300, topology="star", name="mine")
    assert instance.name == "server-mine-0"
    assert (instance.cluster.gpu_count, sum(job.workers for job in instance.jobs)) == (6, 18)


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

"""Bundled instances and where commands find them: complete, reproducible, and as varied as they claim to be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.documents import instance_sha256, load_plan, save_plan
from jigsaw_opt.instances import best_known, best_plan, best_proof, generate, load, names, sets
from jigsaw_opt.instances.bundle import rendered
from jigsaw_opt.instances.catalogue import BEST_KNOWN, DATA, path_of, plan_path, proof_path, read_best_known
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.instances.task_graph_sets import PIPELINES, SHOPS
from jigsaw_opt.problem import FreeDepth, FullDepth, Instance, StaircaseDepth, TaskGraph, compile_instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import misuse, refuses


def test_bundled_files_are_exactly_those_that_the_generators_make() -> None:
    made = dict(rendered())
    assert {path_of(name).read_bytes() == data for name, data in made.items()} == {True}
    assert {path for path in DATA.rglob("*.json") if path != BEST_KNOWN} == {path_of(name) for name in made}


def test_sets_are_of_the_promised_size() -> None:
    assert sets() == ("tiny", "server", "rack", "pod", "cluster", "pipeline", "shop")
    assert [len(names(each)) >= least for each, least in zip(sets(), (60, 12, 10, 6, 4, 8, 6), strict=True)] == [
        True
    ] * 7
    assert sum(path.stat().st_size for path in DATA.rglob("*.json")) < 6_000_000


def test_names_work_with_a_slash_and_with_a_dash() -> None:
    assert load("server-link-bound") == load("server/link-bound")
    assert load("tiny-042") == load("tiny/042")


def test_unknown_names_are_refused_with_near_ones() -> None:
    with misuse("unknown-name name", naming=["'tiny/042'"]):
        load("tiny/0422")
    with misuse("unknown-name set_name", naming=["'huge'"]):
        names("huge")


def test_tiny_instances_are_tiny() -> None:
    cuts = [compile_instance(load(name)) for name in names("tiny")]
    assert max(operations.cluster.gpu_count for operations in cuts) == 4
    assert max(len(operations.jobs) for operations in cuts) <= 7
    sizes = sorted(operations.blocks + operations.transfers for operations in cuts)
    assert sizes[len(sizes) * 8 // 10] <= 24
    assert sizes[-1] <= 32


def _depth(kind: type) -> Callable[[Instance], bool]:
    return lambda instance: any(isinstance(job.depth, kind) and job.workers > 1 for job in instance.jobs)


def _free(field: str) -> Callable[[Instance], bool]:
    plain = getattr(FreeDepth(), field)
    return lambda instance: any(getattr(job.depth, field, plain) != plain and job.workers > 1 for job in instance.jobs)


FEATURES: dict[str, Callable[[Instance], bool]] = {
    "full": _depth(FullDepth),
    "staircase": _depth(StaircaseDepth),
    "free": _depth(FreeDepth),
    "min_contributors": _free("min_contributors"),
    "mean_depth": _free("mean_depth"),
    "balance": _free("balance"),
    "makespan": lambda instance: instance.objective == "makespan",
    "weighted_completion": lambda instance: instance.objective == "weighted_completion",
    "cyclic": lambda instance: instance.horizon == "cyclic",
    "one server": lambda instance: len(instance.cluster.servers) == 1,
    "several servers": lambda instance: len(instance.cluster.servers) > 1,
    "ring over three servers": lambda instance: _spans_three_servers(instance),
    "mixed types": lambda instance: len({server.gpu_type for server in instance.cluster.servers}) > 1,
    "model of one type only": lambda instance: (
        {len(model.gpu_types) for model in instance.models.values()} >= {1}
        and len({server.gpu_type for server in instance.cluster.servers}) > 1
    ),
    "switch": lambda instance: len(instance.cluster.switches) == 1,
    "tree": lambda instance: len(instance.cluster.switches) > 2,
    "direct links": lambda instance: bool(instance.cluster.links) and not instance.cluster.switches,
    "latency": lambda instance: any(link.latency_us for link in instance.cluster.links),
    "empty bucket": lambda instance: any(0 in model.bucket_bytes() for model in instance.models.values()),
    "skipped level": lambda instance: any(m.depth < len(m.segments) for m in instance.models.values()),
    "four levels": lambda instance: any(model.depth == 4 for model in instance.models.values()),
    "release": lambda instance: any(job.release_us for job in instance.jobs),
    "weights": lambda instance: len({job.weight for job in instance.jobs}) > 1,
    "tight memory": lambda instance: any(server.gpu_memory < 10**9 for server in instance.cluster.servers),
    "three iterations": lambda instance: any(job.iterations == 3 for job in instance.jobs),
}


def test_tiny_covers_every_feature_more_than_once() -> None:
    tiny = [load(name) for name in names("tiny")]
    assert [feature for feature, has in FEATURES.items() if sum(map(has, tiny)) < 2] == []


def test_best_known_values_belong_to_the_bundled_instances() -> None:
    known = read_best_known(BEST_KNOWN)
    assert set(known) == set(names())
    for name, best in known.items():
        instance = load(name)
        assert (instance.name, instance_sha256(instance)) == (name.replace("/", "-"), best.instance_sha256)
        assert best.objective is None or 0 < best.bound <= best.objective
        assert (best.found is None) == (best.objective is None)
        assert best.proved is not None
        assert best_known(name) == best


def _is_certified(name: str, folder: Path = DATA) -> bool:
    """Whether the plan in a folder shows the best known value, by the rules and the checker alone."""
    known = read_best_known(BEST_KNOWN)[name]
    plan = load_plan(plan_path(name, folder))
    return check(load(name), plan) == () and plan.objective == known.objective


def test_a_plan_shows_every_best_known_value() -> None:
    assert [name for name in names() if not _is_certified(name)] == []


def test_a_plan_that_is_worse_or_wrong_shows_nothing(tmp_path: Path) -> None:
    best, worse = best_plan("tiny/000"), solve(load("tiny/000"), "greedy").plan
    assert best is not None and worse is not None and worse.objective > best.objective
    path = plan_path("tiny/000", tmp_path)
    path.parent.mkdir()
    told = []
    for plan in (best, worse, replace(worse, objective=best.objective, bound=0)):
        save_plan(plan, path)
        told.append(_is_certified("tiny/000", tmp_path))
    assert told == [True, False, False]


def test_plans_and_proofs_are_small_and_of_bundled_instances() -> None:
    proofs = {proof_path(name) for name, best in read_best_known(BEST_KNOWN).items() if best.certified_bound}
    files = set(DATA.rglob("*.gz"))
    assert files == {plan_path(name) for name in names()} | proofs
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert sum(path.stat().st_size for path in proofs) < 100_000


def _assert_proven(name: str) -> None:
    """Assert that the stored proof proves exactly the certified bound, in no more text than ten plans."""
    best, proof, plan = best_known(name), best_proof(name), plan_path(name)
    assert best is not None and proof is not None and proof.bound == best.certified_bound <= best.bound
    assert check_proof(load(name), proof) is None
    assert len(json.dumps(proof.argument)) < 10 * len(gzip.decompress(plan.read_bytes()))


def test_a_proof_shows_certified_bounds() -> None:
    known = {name: best for name, best in read_best_known(BEST_KNOWN).items() if best.certified_bound}
    assert len(known) >= 124 and sum(best.certified for best in known.values()) >= 109
    for name in [*known][::8]:
        _assert_proven(name)


@pytest.mark.slow
def test_a_proof_shows_every_certified_bound() -> None:
    for name, best in read_best_known(BEST_KNOWN).items():
        if best.certified_bound:
            _assert_proven(name)


def _spans_three_servers(instance: Instance) -> bool:
    links, servers = instance.cluster.links, {server.name for server in instance.cluster.servers}
    direct = sum(set(link.ends) <= servers for link in links)
    wide = any(job.workers >= 3 for job in instance.jobs)
    return wide and len(servers) >= 3 and direct >= 3 and all(server.gpus == 1 for server in instance.cluster.servers)


def shape_of(instance: Instance) -> TaskGraph:
    return instance.task_graph_jobs[0].shape


@pytest.mark.parametrize("name", PIPELINES)
def test_every_micro_batch_passes_every_stage_there_and_back(name: str) -> None:
    recipe, shape = PIPELINES[name], shape_of(load(f"pipeline/{name}"))
    blocks = {block.name: block for block in shape.blocks}
    before = {edge.after: edge.before for edge in shape.edges}
    for batch in range(recipe.batches):
        at, passed = f"B{batch}.0", list[str]()
        while at in before:
            at = before[at]
            passed.append(at)
        assert at == f"F{batch}.0"
        visited = [each for each in passed if each in blocks and each[0] in "FB"]
        assert len(visited) == 2 * recipe.stages - 1
    work = [sum(b.duration_us["v100"] for b in shape.blocks if slot.name in b.slots) for slot in shape.slots]
    assert min(work) >= recipe.batches * 3 * 8000
    assert len(shape.holds) == recipe.batches * recipe.stages


@pytest.mark.parametrize("name", SHOPS)
def test_every_order_goes_once_to_every_machine(name: str) -> None:
    recipe, instance = SHOPS[name], load(f"shop/{name}")
    assert len(instance.jobs) == recipe.jobs
    for job in instance.task_graph_jobs:
        visits = sorted((block.name.split(".")[0], *block.slots) for block in job.shape.blocks)
        assert visits == [(str(o), f"m{m}") for o in range(recipe.orders) for m in range(recipe.machines)]
        assert len(job.shape.edges) == recipe.orders * (recipe.machines - 1)
    machines = {
        tuple(block.slots for block in shape_of(instance).blocks[k * recipe.machines :][: recipe.machines])
        for k in range(recipe.orders)
    }
    assert (len(machines) == 1) == recipe.flow


def test_a_solver_of_data_parallel_jobs_refuses_them_by_name() -> None:
    with misuse("unsupported instance", naming=["'ilp'", "'shop-job-6x4'", "'j0'"]):
        solve(load("shop/job-6x4"), "ilp", Options(time_limit=1.0))


def test_a_file_comes_before_a_bundled_name_and_a_family(
    pair_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert instance_from("tiny/004") == load("tiny/004")
    assert instance_from("tiny:4") == generate("tiny", 4)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    for name in ("tiny/004", "tiny:4"):
        (tmp_path / name).write_bytes(pair_path.read_bytes())
        assert instance_from(name) == instance_from(str(pair_path))


def test_a_family_takes_changes_of_its_recipe() -> None:
    changed = instance_from("server:3:servers=3:gpus=2:load=150:bandwidth=1000000:objective=weighted_completion")
    wanted = {"servers": 3, "gpus": 2, "load": 150, "bandwidth": 1_000_000, "objective": "weighted_completion"}
    assert changed == generate("server", 3, **wanted)
    assert changed.cluster.gpu_count == 6 and changed.objective == "weighted_completion"


@pytest.mark.parametrize(
    ("source", "expected", "named"),
    [
        ("tiny:", "malformed seed", "''"),
        ("tiny:-1", "malformed seed", "'-1'"),
        ("tiny:1:load", "malformed", "'load'"),
        ("tiny:1:load=x", "malformed", "'load=x'"),
        ("tiny:1:depths=1", "malformed", "'depths=1'"),
        ("tiny:1:servers=0", "out-of-range", "servers"),
        ("tiny:1:objective=speed", "unknown-value objective", "'speed'"),
    ],
)
def test_a_wrong_change_is_named(source: str, expected: str, named: str) -> None:
    with misuse(expected, naming=[named]):
        instance_from(source)


def test_what_is_neither_is_a_missing_file() -> None:
    with refuses("unknown-name rock:4", naming=["'rack:4'"]):
        instance_from("rock:4")

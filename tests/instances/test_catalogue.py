"""Bundled files: complete, reproducible, loadable by name, and as varied as they claim to be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256, load_plan, save_plan
from jigsaw_opt.instances import best_known, best_plan, load, names, sets
from jigsaw_opt.instances.bundle import rendered
from jigsaw_opt.instances.catalogue import BEST_KNOWN, DATA, path_of, plan_path, read_best_known
from jigsaw_opt.problem import FreeDepth, FullDepth, Instance, StaircaseDepth, compile_instance
from jigsaw_opt.solvers.solve import solve
from tests.refusals import misuse


def test_bundled_files_are_exactly_those_that_the_generators_make() -> None:
    made = dict(rendered())
    assert {path_of(name).read_bytes() == data for name, data in made.items()} == {True}
    assert {path for path in DATA.rglob("*.json") if path != BEST_KNOWN} == {path_of(name) for name in made}


def test_every_bundled_file_decodes_and_bears_its_name() -> None:
    for name in names():
        assert load(name).name == name.replace("/", "-")


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


def test_listing_reads_no_file_and_loads_no_engine() -> None:
    program = (
        "import sys, builtins; from jigsaw_opt.instances import names\n"
        "names(); print(sorted({'ortools', 'pulp', 'highspy', 'numpy', 'networkx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("feature", FEATURES)
def test_tiny_covers_every_feature_more_than_once(feature: str) -> None:
    assert sum(FEATURES[feature](load(name)) for name in names("tiny")) >= 2


def test_best_known_values_belong_to_the_bundled_instances() -> None:
    known = read_best_known(BEST_KNOWN)
    assert set(known) <= set(names())
    for name, best in known.items():
        assert best.instance_sha256 == instance_sha256(load(name))
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


def test_plans_are_small_and_of_bundled_instances() -> None:
    files = set(DATA.rglob("*.gz"))
    assert files == {plan_path(name) for name in names()}
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_most_tiny_instances_are_solved_to_proven_optimality() -> None:
    proven = [best for best in map(best_known, names("tiny")) if best is not None and best.optimal]
    assert len(proven) >= 60


def _spans_three_servers(instance: Instance) -> bool:
    links, servers = instance.cluster.links, {server.name for server in instance.cluster.servers}
    direct = sum(set(link.ends) <= servers for link in links)
    wide = any(job.workers >= 3 for job in instance.jobs)
    return wide and len(servers) >= 3 and direct >= 3 and all(server.gpus == 1 for server in instance.cluster.servers)

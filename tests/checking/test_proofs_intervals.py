"""Proofs of completion times: those of the relaxations are right, and changed ones prove no more than is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.checking.proofs.arguments import proven
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.instances import catalogue
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import (
    Cluster,
    FreeDepth,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    compile_instance,
)
from jigsaw_opt.solvers.bounds import Bound, stronger_bounds
from jigsaw_opt.solvers.bounds.completion.disjunctive import JOB_PAIRS
from jigsaw_opt.solvers.bounds.completion.energetic import ENERGETIC_INTERVALS
from jigsaw_opt.solvers.bounds.completion.shared_program import MEAN_BUSY_TIMES
from jigsaw_opt.solvers.bounds.registry import names
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext
from tests.checking.proof_mutants import mutants

WEIGHTED = [name for name in catalogue.names("tiny") if catalogue.load(name).objective == "weighted_completion"]


def bounds(instance: Instance, work: float = 0.2) -> list[Bound]:
    """The bounds of intervals, with what pairs of jobs prove unless some may move."""
    context, budget, moving = BoundContext(compile_instance(instance)), BoundBudget(work), bool(instance.moving_jobs)
    pairs = () if moving else JOB_PAIRS.bounds(context, 0, budget)
    return [*pairs, *ENERGETIC_INTERVALS.bounds(context, 0, budget)]


def value(instance: Instance, argument: object) -> int | None:
    """What an argument proves, None where it is refused."""
    try:
        return proven(ProofStep(argument, "$"), Facts(instance))
    except ProofStepError:
        return None


def is_proven(instance: Instance) -> bool:
    found = [bound for bound in bounds(instance) if bound.proof.argument is not None]
    assert [value(instance, bound.proof.argument) for bound in found] == [bound.value for bound in found]
    return bool(found)


def test_every_bound_of_tiny_instances_is_proven_exactly() -> None:
    assert all(is_proven(catalogue.load(name)) for name in WEIGHTED[::2])


@pytest.mark.parametrize("source", ["server/weighted", "server/weighted-link-bound", "crowded:0", "crowded:4"])
def test_every_bound_of_mixed_gpus_and_links_is_proven_exactly(source: str) -> None:
    kind = ":objective=weighted_completion" if ":" in source else ""
    assert is_proven(instance_from(source + kind))


@pytest.mark.parametrize("source", ["server/free", "rack/tree"])
def test_depth_rules_and_jobs_that_may_move_are_proven_too(source: str) -> None:
    instance = replace(instance_from(source), objective="weighted_completion")
    free = replace(instance, jobs=tuple(replace(job, depth=FreeDepth(2, "3/5")) for job in instance.jobs))
    moving = replace(free, jobs=tuple(replace(job, restart_us=1000) for job in free.jobs))
    assert is_proven(instance)
    assert is_proven(free)
    assert is_proven(moving)


def test_a_task_graph_job_that_may_move_leaves_the_kinds_of_placement_of_the_others() -> None:
    instance = instance_from("tiny/010")
    types = {server.gpu_type: 5 for server in instance.cluster.servers}
    graph = TaskGraph((Slot("s"),), (TaskGraphBlock("b", ("s",), types),))
    mixed = replace(instance, jobs=(*instance.jobs, TaskGraphJob("graph", graph, 1, restart_us=5)))
    others = [name for name in names() if name != "energetic_intervals"]
    found = list(stronger_bounds(compile_instance(mixed), -1, 0.3, without=others))
    assert found
    assert all(value(mixed, bound.proof.argument) == bound.value for bound in found)


def test_a_job_with_very_many_numbers_of_workers_is_its_only_kind_of_placement() -> None:
    types = [f"t{k}" for k in range(9)]
    servers = [Server(f"{t}{k}", t, 32, 10**6, 10**9) for t in types for k in (0, 1)]
    links = [Link(f"l{server.name}", (server.name, "x"), 10**9) for server in servers]
    segment = Segment("a", dict.fromkeys(types, 1), dict.fromkeys(types, 1), 0, 0)
    jobs = [Job("few", "m", 1, 3), Job("many", "m", 64, 3)]
    cluster = Cluster(servers, ("x",), links)
    instance = Instance("kinds", cluster, {"m": Model((segment,))}, jobs, objective="weighted_completion")
    assert is_proven(instance)


def test_bounds_of_pairs_of_jobs_that_share_a_gpu_are_proven_exactly() -> None:
    instance = instance_from("server/weighted")
    found = list(JOB_PAIRS.bounds(BoundContext(compile_instance(instance)), 0, BoundBudget(1.0)))[-1]
    argument = found.proof.argument
    assert argument is not None
    assert [row["kind"] for row in argument["rows"]] == ["pair"]
    assert value(instance, argument) == found.value
    # With more GPUs the jobs need not share one.
    servers = tuple(replace(server, gpus=99) for server in instance.cluster.servers)
    larger = replace(instance, cluster=replace(instance.cluster, servers=servers))
    assert value(larger, argument) is None


def test_a_changed_proof_is_refused_or_proves_no_more_than_the_best_plan_has() -> None:
    refused = accepted = 0
    for name in WEIGHTED[:2]:
        instance, best = catalogue.load(name), catalogue.best_known(name)
        assert best is not None
        assert best.objective is not None
        argument = bounds(instance)[-1].proof.argument
        for where, changed in mutants(argument):
            found = value(instance, changed)
            assert found is None or found <= best.objective, (name, where)
            refused, accepted = refused + (found is None), accepted + (found is not None)
    # Any multipliers and intervals are right; what they prove is another number.
    assert refused >= 20
    assert accepted >= 20


@pytest.mark.parametrize("source", ["tiny/003", "server/weighted-link-bound", "rack/tree"])
def test_bounds_of_mean_busy_times_are_proven_exactly_and_changed_ones_are_right_or_refused(source: str) -> None:
    instance = replace(instance_from(source), objective="weighted_completion")
    found = list(MEAN_BUSY_TIMES.bounds(BoundContext(compile_instance(instance)), 0, BoundBudget(0.3)))
    argument = found[-1].proof.argument
    assert argument is not None
    assert any(row["kind"] == "fragments" for row in argument["rows"])
    assert value(instance, argument) == found[-1].value
    if source == "tiny/003":
        best = catalogue.best_known(source)
        values = [value(instance, changed) for _, changed in mutants(argument)]
        assert best is not None
        assert best.objective is not None
        assert all(each is None or each <= best.objective for each in values)
        assert values.count(None) >= 10

"""Proofs of the bounds of task-graph jobs: right as they are made, and refused with any number or name changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from jigsaw_opt.checking.proofs import ProofFault, check_proof
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.bound_proof import Argument, BoundProof
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.bounds.driver import instant_bounds
from tests.checking.proof_mutants import mutants
from tests.random_task_graphs import random_task_graph_instance

OWN = {"slot_loads", "mixed_loads", "task_power", "mixed_power", "held_time", "partial_placements", "more_placements"}
KINDS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]
BUNDLED = ("split-backward", "v-shape", "two-servers", "two-jobs", "tight-memory", "sharded")


def fault(instance: Instance, argument: Argument, value: int) -> ProofFault | None:
    proof = BoundProof(instance.name, instance_sha256(instance), instance.objective, value, argument)
    return check_proof(instance, proof)


@cache
def proofs(instance: Instance) -> list[Bound]:
    """The bounds of an instance's task-graph jobs that have an argument."""
    found = instant_bounds(compile_instance(instance))
    return [bound for bound in found if bound.proof.argument and bound.proof.relaxation in OWN]


def drawn(seed: int, horizon: Horizon, objective: Objective) -> Instance:
    return random_task_graph_instance(seed, horizon, objective)


def capped(instance: Instance) -> Instance:
    """The instance where every block draws much, and all but the first server are under a power cap."""
    watts = {"v": 70, "w": 90}
    jobs = tuple(
        replace(job, shape=replace(job.shape, blocks=tuple(replace(b, power_w=watts) for b in job.shape.blocks)))
        if isinstance(job, TaskGraphJob)
        else job
        for job in instance.jobs
    )
    models = {name: replace(model, power_w=watts) for name, model in instance.models.items()}
    servers = tuple(server.name for server in instance.cluster.servers[1:]) or (instance.cluster.servers[0].name,)
    cluster = replace(instance.cluster, power_caps=(PowerCap("row", servers, 100),))
    return replace(instance, cluster=cluster, jobs=jobs, models=models)


def kinds_in(argument: object) -> Counter[str]:
    """How often each kind of argument is in one."""
    found = Counter[str]()
    if isinstance(argument, dict):
        found.update([str(argument["kind"])] if "kind" in argument else [])
        for inner in argument.values():
            found += kinds_in(inner)
    if isinstance(argument, list):
        for inner in argument:
            found += kinds_in(inner)
    return found


def test_proofs_that_bounds_make_are_right() -> None:
    instances = [load(f"pipeline/{name}") for name in BUNDLED] + [load("shop/job-6x4"), load("shop/cyclic-5x4")]
    instances += [drawn(seed, *kind) for seed in range(30) for kind in KINDS]
    instances += [capped(drawn(seed, *KINDS[seed % 2 * 2])) for seed in range(20)]
    found, relaxations = Counter[str](), Counter[str]()
    for instance in instances:
        for bound in proofs(instance):
            assert bound.proof.argument is not None
            assert fault(instance, bound.proof.argument, bound.value) is None, (instance.name, bound)
            found += kinds_in(bound.proof.argument)
            relaxations[bound.proof.relaxation] += 1
    assert relaxations.keys() == OWN - {"more_placements"}
    kinds = (
        "exclusive operations",
        "longest chain",
        "span between barriers",
        "held memory",
        "placements",
        "sum",
        "shared work",
    )
    assert all(found[kind] for kind in (*kinds, "some jobs")), found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[1])
def test_a_changed_proof_is_refused_or_proves_no_more_than_the_bound(kind: tuple[Horizon, Objective]) -> None:
    changed = right = 0
    for seed in range(12):
        instance = drawn(seed, *kind)
        for bound in proofs(instance)[-1:] + (proofs(capped(instance))[-1:] if seed < 6 else []):
            assert bound.proof.argument is not None
            for path, argument in mutants(bound.proof.argument):
                changed += 1
                # A job of which nothing is said may be left out, and a case may prove more than is asked for.
                if fault(instance, argument, bound.value) is None:
                    right += 1
                    assert any(part in path for part in ("jobs - [", "tree", "arguments", "parts")), path
                assert fault(instance, argument, bound.value + 1) is not None, path
    assert changed > 100 and right <= changed // 5


@pytest.mark.parametrize("slot", [[7, "pipe", "first"], ["pipe"], "ab", ["pipe", 7]])
def test_a_slot_is_named_by_a_pair_of_a_job_and_a_slot(slot: object) -> None:
    instance = load("pipeline/plain")
    job = instance.jobs[0]
    assert isinstance(job, TaskGraphJob)
    names = [job.name, job.shape.slots[0].name]
    argument = {"kind": "exclusive operations", "resource": {"slot": names}, "head": 0, "tail": 0}
    told = fault(instance, argument, 0)
    assert told is not None and told.path == "$.bound"
    told = fault(instance, {**argument, "resource": {"slot": slot}}, 0)
    assert told is not None and told.path.startswith("$.argument.resource")

"""Proofs of the combinatorial bounds: accepted as they are, refused when a field is changed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.solvers.bounds.driver import BoundContext
from jigsaw_opt.solvers.bounds.registry import relaxations
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget
from tests.checking.proof_mutants import mutants
from tests.random_instances import random_instance, tight_instance, with_licences, with_power_caps, with_route_policies


def proof_of(instance: Instance, bound: Bound) -> BoundProof:
    argument = json.loads(json.dumps(bound.proof.argument))
    return BoundProof(instance.name, instance_sha256(instance), instance.objective, bound.value, argument)


def all_bounds(instance: Instance) -> list[Bound]:
    """Every bound of an instant relaxation, whether another one is better or not."""
    operations = compile_instance(instance)
    context = BoundContext(operations)
    return [
        replace_relaxation(bound, each.name)
        for each in relaxations(())
        if each.instant and each.applies(operations)
        for bound in each.bounds(context, -1, BoundBudget())
    ]


def replace_relaxation(bound: Bound, name: str) -> Bound:
    return bound._replace(proof=replace(bound.proof, relaxation=name))


KINDS = (("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period"))


@pytest.mark.parametrize(("horizon", "objective"), KINDS)
def test_every_bound_of_random_instances_is_accepted(horizon: str, objective: str) -> None:
    accepted = Counter[str]()
    for seed in range(80):
        draw = Random(seed)
        instance = random_instance(seed, horizon, objective, 14)  # type: ignore[arg-type]
        if horizon == "finite" and seed % 4 == 0:
            instance = tight_instance(seed, objective, "data-parallel", 10)  # type: ignore[arg-type]
        changes = (with_power_caps, with_route_policies, *([with_licences] if horizon == "finite" else []))
        for change in changes:
            instance = change(instance, draw) if draw.random() < 0.4 else instance
        if horizon == "finite" and draw.random() < 0.2:
            instance = replace(instance, jobs=tuple(replace(job, restart_us=3) for job in instance.data_parallel))
        for bound in all_bounds(instance):
            assert check_proof(instance, proof_of(instance, bound)) is None, (seed, bound)
            accepted[bound.proof.relaxation] += 1
    own = {"makespan": {"power_energy", "held_units", "worker_packing"}, "period": {"power_energy", "worker_packing"}}
    assert {"critical_path", "gpu_work", "link_transfers", *own.get(objective, {"held_units"})} <= accepted.keys()


@pytest.mark.parametrize("name", ["tiny/000", "tiny/010", "tiny/030", "server/cyclic"])
def test_every_changed_field_is_refused(name: str) -> None:
    instance = load(name)
    for bound in all_bounds(instance):
        proof = proof_of(instance, bound)
        for path, changed in mutants(proof.argument):
            # Other multipliers may prove the same, for the value is rounded up.
            free = "multiplier" in path or "denominator" in path
            assert free or check_proof(instance, replace(proof, argument=changed)) is not None, (bound, path)


def test_a_list_of_facts_without_names_is_refused() -> None:
    instance = load("tiny/000")
    listed = [bound for bound in all_bounds(instance) if (bound.proof.argument or {}).get("kind") == "load"]
    assert listed
    for bound in listed:
        proof = proof_of(instance, bound)
        assert check_proof(instance, proof) is None
        jobs = [*proof.argument["jobs"], {"names": []}]
        fault = check_proof(instance, replace(proof, argument={**proof.argument, "jobs": jobs}))
        assert fault is not None and fault.path == f"$.argument.jobs[{len(jobs) - 1}].names"

"""Two checkers of proofs say the same of arguments that there is no plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from proof_referee import fault_of

from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.instances import load
from tests.benchmarks.test_proof_referee import proof_document, verdict
from tests.checking.proof_mutants import mutants

Document = dict[str, Any]


def no_plan(document: Document, upper_bound: int, bound: int | None = None) -> Document:
    """Return a proof that jobs without room have no plan: all task-graph jobs, or else all jobs."""
    graphs = [job for job in document["jobs"] if "shape" in job]
    if graphs:
        slot = [graphs[0]["name"], graphs[0]["shape"]["slots"][0]["name"]]
        inner = {"kind": "placements", "bound": upper_bound + 1, "order": [slot], "arguments": [], "tree": {}}
    else:
        inner = {"kind": "cases", "limit": upper_bound, "iterations": "together", "branches": [], "tree": [-1]}
    argument = {
        "kind": "no plan",
        "jobs": [job["name"] for job in graphs or document["jobs"]],
        "upper_bound": upper_bound,
        "argument": inner,
    }
    return proof_document(decode_instance(json.dumps(document)), bound, argument)


def upper_bound_of(document: Document) -> int:
    fault = fault_of(document, no_plan(document, 0))
    assert fault is not None and fault.startswith("the upper bound is "), fault
    return int(fault.split()[-1])


@pytest.mark.parametrize("guarantee", ["none", "some", "all"])
@pytest.mark.parametrize(
    "name", ["tiny/003", "tiny/020", "server/cyclic", "server/mixed-types", "pipeline/two-jobs", "shop/flow-8x3"]
)
def test_gpus_without_memory_have_no_plan(name: str, guarantee: str) -> None:
    document: Document = json.loads(encode_instance(load(name)))
    for server in document["cluster"]["servers"]:
        server["gpu_memory"] = 0
    for k, job in enumerate(document["jobs"]):
        if "shape" in job:
            job["shape"]["slots"][0]["memory"] = 1
        if guarantee == "all" or (guarantee == "some" and k == 0):
            job["pace_us" if document["horizon"] == "cyclic" else "deadline_us"] = 3 + k
    upper = upper_bound_of(document)
    proof = no_plan(document, upper)
    assert verdict(document, proof)
    assert not verdict(document, no_plan(document, upper, upper + 1))
    assert not verdict(document, {**proof, "bound": 0, "argument": {"kind": "none", "jobs": []}})
    for wrong in (upper - 1, upper + 1):
        assert not verdict(document, no_plan(document, wrong))
    for _, other in mutants(proof["argument"]):
        verdict(document, {**proof, "argument": other})


def test_jobs_that_may_move_have_no_plan_only_within_deadlines() -> None:
    document: Document = json.loads(encode_instance(load("tiny/003")))
    for server in document["cluster"]["servers"]:
        server["gpu_memory"] = 0
    document["jobs"][0]["restart_us"] = 5
    assert not verdict(document, no_plan(document, 0))
    for job in document["jobs"]:
        job["deadline_us"] = 10**6
    assert upper_bound_of(document) == 10**6
    assert verdict(document, no_plan(document, 10**6))


def test_licences_that_there_are_too_few_of() -> None:
    for name, few, enough in (("tiny/003", 0, 1), ("server/cyclic", 1, 2)):
        document: Document = json.loads(encode_instance(load(name)))
        for job in document["jobs"][:2]:
            job["licences"] = ["tool"]
        for count in (few, enough):
            document["cluster"]["licences"] = {"tool": count}
            assert verdict(document, no_plan(document, upper_bound_of(document))) == (count == few)


def test_a_job_of_very_many_workers_may_be_among_the_jobs() -> None:
    document: Document = json.loads(encode_instance(load("tiny/003")))
    for server in document["cluster"]["servers"]:
        server["gpu_memory"] = 0
    document["jobs"][0]["workers"] = 2 * 10**6
    proof = no_plan(document, upper_bound_of(document))
    assert not verdict(document, proof)
    others = [job["name"] for job in document["jobs"][1:]]
    proof["argument"]["argument"] = {"kind": "some jobs", "jobs": others, "argument": proof["argument"]["argument"]}
    assert verdict(document, proof)

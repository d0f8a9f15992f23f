"""Two checkers of proofs, written apart from each other, say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from proof_referee import fault_of

from jigsaw_opt import Options, check_proof, instances, solve
from jigsaw_opt.documents import decode_instance, decode_proof, encode_instance, encode_proof, instance_sha256
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem import Instance
from tests.checking.proof_mutants import mutants

Document = dict[str, Any]


def proof_document(instance: Instance, bound: int | None, argument: Document) -> Document:
    """Return the document of a proof, as a dictionary."""
    return {
        "format": "jigsaw-proof/1",
        "instance": instance.name,
        "instance_sha256": instance_sha256(instance),
        "objective": instance.objective,
        "bound": bound,
        "argument": argument,
    }


def verdict(instance: Document, proof: Document) -> bool:
    """Return whether a proof is right, which both checkers must agree on."""
    other = fault_of(instance, proof)
    try:
        fault: object = check_proof(decode_instance(json.dumps(instance)), decode_proof(json.dumps(proof)))
    except JigsawError as error:
        fault = error
    assert (fault is None) == (other is None), (fault, other, json.dumps(proof))
    return other is None


def number_in(fault: str | None) -> int:
    """Return the number that the second checker says an argument proves."""
    assert fault is not None and fault.startswith("the argument proves "), fault
    return int(fault.split()[3].rstrip(","))


def test_an_argument_of_nothing_proves_zero() -> None:
    instance = instances.load("tiny/000")
    document = json.loads(encode_instance(instance))
    proof = proof_document(instance, 0, {"kind": "none"})
    assert verdict(document, proof)
    some = {"kind": "some jobs", "jobs": [instance.jobs[0].name], "argument": {"kind": "none"}}
    assert verdict(document, {**proof, "argument": some})
    for wrong in ({"instance_sha256": "0" * 64}, {"objective": "period"}, {"bound": 1}):
        assert not verdict(document, {**proof, **wrong})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("server/plain", "critical path"),
        ("server/cyclic", "critical path"),
        ("server/link-bound", "load"),
        ("tiny/020", "load"),
        ("server/weighted", "completions"),
        ("tiny/037", "workers"),
    ],
)
def test_bounds_of_data_parallel_jobs_and_changed_ones_are_judged_alike(name: str, kind: str) -> None:
    instance = instances.load(name)
    document = json.loads(encode_instance(instance))
    found = solve(instance, "greedy", Options(threads=1)).bound_proof
    assert found is not None
    proof = json.loads(encode_proof(found))
    assert proof["argument"]["kind"] == kind
    assert verdict(document, proof)
    changed = [other for _, other in mutants(proof["argument"])]
    judged = [verdict(document, {**proof, "argument": other}) for other in changed[:: len(changed) // 20 + 1]]
    assert judged.count(True) <= 2


def test_bins_too_few_for_the_workers_are_judged_alike() -> None:
    instance = instances.load("server/link-bound")
    document = json.loads(encode_instance(instance))
    argument = {"kind": "bins", "limit": 5, "links": [], "prices": {instance.jobs[0].name: 1}}
    proof = proof_document(instance, 6, argument)
    assert verdict(document, proof)
    assert not verdict(document, {**proof, "bound": 10**9, "argument": {**argument, "limit": 10**9 - 1}})
    assert not verdict(document, {**proof, "argument": {**argument, "prices": {instance.jobs[0].name: 0}}})


def test_orders_of_two_jobs_that_share_a_gpu_are_judged_alike() -> None:
    segment = {
        "name": "all",
        "forward_us": {"v100": 1},
        "backward_us": {"v100": 2},
        "parameter_bytes": 1,
        "activation_bytes": 1,
    }
    server = {"name": "s0", "gpu_type": "v100", "gpus": 1, "gpu_memory": 100, "fabric_bandwidth": 1}
    document: Document = {
        "format": "jigsaw-instance/1",
        "name": "shared",
        "cluster": {"servers": [server]},
        "models": {"net": {"segments": [segment]}},
        "jobs": [
            {"name": "a", "model": "net", "workers": 1, "iterations": 2},
            {"name": "b", "model": "net", "workers": 1, "iterations": 1, "weight": 3},
        ],
        "objective": "weighted_completion",
    }
    pair = {"kind": "pair", "jobs": ["a", "b"], "rows": [[1, 3, 18, 1]]}  # b first: it ends at 3, a at 9
    completions = [{"names": ["a"], "completion": 6}, {"names": ["b"], "completion": 3}]
    argument = {"kind": "completions", "completions": completions, "denominator": 1, "rows": [pair]}
    proof = proof_document(decode_instance(json.dumps(document)), 18, argument)
    assert verdict(document, proof)
    assert not any(verdict(document, {**proof, "argument": other}) for _, other in mutants(argument))


def test_intervals_of_time_and_changed_ones_are_judged_alike() -> None:
    instance = instances.load("tiny/003")
    document = json.loads(encode_instance(instance))
    gpus = {"gpu_type": "v100", "gpu_memory": 32000000000, "price": 1}
    argument = {
        "kind": "intervals",
        "denominator": 2000,
        "rows": [{"kind": "pair", "jobs": ["job0", "job2"], "rows": [[536, 432, 1568704, 3]]}],
        "resources": [{"kind": "gpus", "prices": [gpus], "capacity": 2}],
        "intervals": [[0, 0, 852, 690], [0, 0, 1696, 100], [0, 0, 1664, 350], [0, 0, 1088, 410], [0, 5, 1056, 465]],
    }
    proof = proof_document(instance, 0, argument)
    proof["bound"] = number_in(fault_of(document, proof))
    assert verdict(document, proof)
    changed = [other for _, other in mutants(argument)]
    judged = [verdict(document, {**proof, "argument": other}) for other in changed[::5]]
    assert judged.count(False) > len(judged) / 2


@pytest.mark.parametrize(("name", "kind"), [("server/weighted", "gpus"), ("server/weighted-link-bound", "links")])
@pytest.mark.parametrize("may_move", [False, True])
def test_intervals_and_fragments_prove_the_same_number(name: str, kind: str, may_move: bool) -> None:
    document = json.loads(encode_instance(instances.load(name)))
    if may_move:
        document["jobs"][0]["restart_us"] = 100
    instance = decode_instance(json.dumps(document))
    cluster, jobs = document["cluster"], ["job0", "job2"]
    kinds = sorted({(server["gpu_type"], server["gpu_memory"]) for server in cluster["servers"]})
    if kind == "gpus":
        prices = [{"gpu_type": t, "gpu_memory": size, "price": 2} for t, size in kinds]
        resource = {"kind": kind, "prices": prices, "capacity": 2 * sum(s["gpus"] for s in cluster["servers"])}
    else:
        links = [link["name"] for link in cluster["links"]]
        resource = {"kind": kind, "links": links, "capacity": len(links)}
    sets = [
        {"head": 0, "jobs": dict.fromkeys(jobs, 3), "multiplier": 1},
        {"head": 1, "jobs": {jobs[0]: 2}, "multiplier": 2},
    ]
    argument: Document = {
        "kind": "intervals",
        "denominator": 10**13,
        "rows": [{"kind": "fragments", "resource": resource, "sets": sets}],
        "resources": [resource],
        "intervals": [[0, 0, 30000, 10**9], [0, 500, 70000, 3 * 10**8]],
    }
    proof = proof_document(instance, 0, argument)
    proof["bound"] = number_in(fault_of(document, proof))
    assert verdict(document, proof)
    assert not verdict(document, {**proof, "argument": {**argument, "intervals": [[0, -1, 1, 1]]}})
    for wrong in ({"jobs": {jobs[0]: 10**6}}, {"jobs": {}}, {"head": -1}, {"multiplier": 0}):
        rows = [{"kind": "fragments", "resource": resource, "sets": [sets[0], {**sets[1], **wrong}]}]
        assert not verdict(document, {**proof, "argument": {**argument, "rows": rows}})

"""Two checkers of proofs, written apart from each other, say the same."""

from __future__ import annotations

import json
from typing import Any

from proof_referee import fault_of

from jigsaw_opt import check_proof, instances
from jigsaw_opt.documents import decode_instance, decode_proof, encode_instance, instance_sha256
from jigsaw_opt.errors import JigsawError

Document = dict[str, Any]


def verdict(instance: Document, proof: Document) -> bool:
    """Return whether a proof is right, which both checkers must agree on."""
    other = fault_of(instance, proof)
    try:
        fault: object = check_proof(decode_instance(json.dumps(instance)), decode_proof(json.dumps(proof)))
    except JigsawError as error:
        fault = error
    assert (fault is None) == (other is None), (fault, other, json.dumps(proof))
    return other is None


def test_an_argument_of_nothing_proves_zero() -> None:
    instance = instances.load("tiny/000")
    document = json.loads(encode_instance(instance))
    proof = {
        "format": "jigsaw-proof/1",
        "instance": instance.name,
        "instance_sha256": instance_sha256(instance),
        "objective": instance.objective,
        "bound": 0,
        "argument": {"kind": "none"},
    }
    assert verdict(document, proof)
    some = {"kind": "some jobs", "jobs": [instance.jobs[0].name], "argument": {"kind": "none"}}
    assert verdict(document, {**proof, "argument": some})
    for wrong in ({"instance_sha256": "0" * 64}, {"objective": "period"}, {"bound": 1}):
        assert not verdict(document, {**proof, **wrong})

"""A second checker of proofs, written from the pages alone: docs/proofs.md and docs/specification.md.

It shares no code with the package. It reads plain JSON, trusts that the instance is sound, and takes its time.
"""

from __future__ import annotations

from . import bins, cases, data_parallel, intervals, last_ends, pairs, parts_of_instances, shared_work  # noqa: F401  (they add kinds)
from .common import Document, UnprovenError, fields, need, proven, shown
from .document import canonical, digest
from .no_plan import check_no_plan

FIELDS = {"format": str, "instance": str, "instance_sha256": str, "objective": str, "bound": object, "argument": dict}


def fault_of(instance: Document, proof: Document) -> str | None:
    """Return what is wrong with a proof, or None; both documents are as `json.loads` reads them."""
    instance = canonical(instance)
    try:
        fields(proof, FIELDS, "proof")
        need(proof["format"] == "jigsaw-proof/1", "the format is another one")
        need(proof["instance_sha256"] == digest(instance), "the hash is another one")
        need(proof["objective"] == instance["objective"], "the objective is another one")
        instance["spent"] = {}
        if proof["bound"] is None:
            check_no_plan(instance, proof["argument"])
            return None
        need(type(proof["bound"]) is int and proof["bound"] >= 0, "the bound is no integer of at least 0")
        value = proven(instance, proof["argument"])
        need(value == proof["bound"], f"the argument proves {shown(value)}, not the bound")
    except UnprovenError as error:
        return str(error)
    return None

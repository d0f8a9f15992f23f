"""A second checker of proofs of bounds, written from the pages alone: docs/proofs.md and docs/specification.md.

It shares no code with the package. It reads plain JSON, trusts that the instance is sound, and takes its time.
"""

from __future__ import annotations

from . import bins, cases, data_parallel, intervals, last_ends, pairs, parts_of_instances, shared_work  # noqa: F401  (they add kinds)
from .common import Document, UnprovenError, fields, need, proven
from .document import canonical, digest

FIELDS = {"format": str, "instance": str, "instance_sha256": str, "objective": str, "bound": int, "argument": dict}


def fault_of(instance: Document, proof: Document) -> str | None:
    """Return what is wrong with the proof of a bound, or None; both documents are as `json.loads` reads them."""
    instance = canonical(instance)
    try:
        fields(proof, FIELDS, "proof")
        need(proof["format"] == "jigsaw-proof/1", "the format is another one")
        need(proof["bound"] >= 0, "the bound is below 0")
        need(proof["instance_sha256"] == digest(instance), "the hash is another one")
        need(proof["objective"] == instance["objective"], "the objective is another one")
        value = proven(instance, proof["argument"])
        need(value == proof["bound"], f"the argument proves {value}, not {proof['bound']}")
    except UnprovenError as error:
        return str(error)
    return None

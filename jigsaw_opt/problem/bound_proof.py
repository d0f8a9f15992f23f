"""The proof of a lower bound as a document that anybody can check (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Argument = Mapping[str, Any]
"""One argument of a proof as plain JSON values: its ``kind``, the facts that it uses, and arguments inside it."""


@dataclass(frozen=True, slots=True)
class BoundProof:
    """Proof that no correct plan of an instance has an objective below a value, or that there is no correct plan.

    Fields as in the document ``jigsaw-proof/1``.

    Parameters
    ----------
    instance, instance_sha256
        Name and hash of the instance.
    objective
        ``makespan`` or ``period``, in microseconds, or ``weighted_completion``, in microseconds times weight.
    bound
        The value; None where there is no correct plan.
    argument
        Why, as plain JSON values.
    """

    instance: str
    instance_sha256: str
    objective: str
    bound: int | None
    argument: Argument

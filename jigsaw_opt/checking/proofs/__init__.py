"""Is the proof of a bound right? Each kind of argument (docs/proofs.md), checked in exact integers.

Nothing here is shared with the solvers, formulations and bounds that make proofs.
"""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.proofs.arguments import proven, require_no_plan
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError, shown
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.instance import Instance

__all__ = ["ProofFault", "check_proof"]


class ProofFault(NamedTuple):
    """The first step of a proof that fails: its path, as in ``$.argument.jobs.a.work``, and what is wrong there."""

    path: str
    message: str


@typed
def check_proof(instance: Instance, proof: BoundProof) -> ProofFault | None:
    """Check the proof of a bound of all correct plans of an instance, or that there is none.

    Parameters
    ----------
    instance
        The instance.
    proof
        The proof, however damaged.

    Returns
    -------
    ProofFault or None
        The first step that fails; None where the proof is right.
    """
    if proof.instance_sha256 != instance_sha256(instance):
        return ProofFault("$.instance_sha256", "is not that of the instance")
    if proof.objective != instance.objective:
        return ProofFault("$.objective", f"is not that of the instance, {instance.objective}")
    if proof.bound is not None and proof.bound < 0:
        return ProofFault("$.bound", "is less than 0")
    try:
        step, facts = ProofStep(proof.argument, "$.argument"), Facts(instance)
        if proof.bound is None:
            require_no_plan(step, facts)
            return None
        value = proven(step, facts)
    except ProofStepError as error:
        return ProofFault(error.path, error.message)
    except RecursionError:
        return ProofFault("$.argument", "is nested too deeply")
    except (MemoryError, OverflowError):
        return ProofFault("$.argument", "takes more memory than there is")
    if value != proof.bound:
        return ProofFault("$.bound", f"is {shown(proof.bound)}, but the argument proves {shown(value)}")
    return None

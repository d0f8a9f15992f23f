"""Refusing plans that break a rule and proofs that are wrong, by whatever shows them or carries them out."""

from __future__ import annotations

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.checker import violations
from jigsaw_opt.checking.proofs import ProofFault, check_proof
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import CheckFailedError
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.text import counted


@typed
def require_correct(instance: Instance, plan: Plan, source: str = "the plan", more: str = "") -> None:
    """Refuse a plan that breaks a rule, with the first of them.

    `source`: what the plan is called. `more`: what the message ends with.
    """
    broken = violations(instance, plan)
    if broken:
        told = f"is wrong in {counted(len(broken), 'place')}, first {broken[0]}{more}"
        raise CheckFailedError(f"{source} {of_another(instance, plan) or told}")


def of_another(instance: Instance, plan: Plan) -> str | None:
    """Return that a plan is of another instance, by name and content; None where it claims to be of this one."""
    if plan.instance == instance.name or plan.instance_sha256 == instance_sha256(instance):
        return None
    return f"is a plan of instance {plan.instance!r}, not of {instance.name!r}"


def proof_fault(instance: Instance, proof: BoundProof, correct: Plan | None = None) -> ProofFault | None:
    """Return the first step of a proof that fails; None where the proof is right.

    `correct`: a correct plan. If it is better than a right proof allows, one of the checks is wrong, which is told.
    """
    fault = check_proof(instance, proof)
    if fault is not None or correct is None or (proof.bound is not None and correct.objective >= proof.bound):
        return fault
    told = "says that there is no plan" if proof.bound is None else f"is {proof.bound}"
    plan = f"the plan has {correct.objective} and keeps all rules"
    return ProofFault("$.bound", f"{told}, but {plan}: a check is wrong; please report it")


def require_right(instance: Instance, proof: BoundProof, correct: Plan | None = None) -> None:
    """Refuse a proof that is wrong, with the first step that fails; `correct`: a correct plan."""
    fault = proof_fault(instance, proof, correct)
    if fault is not None:
        raise CheckFailedError(wrong_proof(fault))


def wrong_proof(fault: ProofFault) -> str:
    """Return that a proof is wrong, and the step that fails."""
    return f"the proof is wrong: {fault.path}: {fault.message}"

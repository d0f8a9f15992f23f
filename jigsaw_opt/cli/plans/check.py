"""Check a plan and a proof against their instance, from the definitions alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import A_PROOF, PLAN, Arguments
from jigsaw_opt.cli.common.options import given_proof
from jigsaw_opt.cli.common.output import note, print_json
from jigsaw_opt.errors import missing_option
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.checking import Violation
    from jigsaw_opt.checking.proofs import ProofFault
    from jigsaw_opt.problem.bound_proof import BoundProof
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan

USAGE = "%(prog)s INSTANCE [PLAN] [--proof PROOF] [--json]"
EXAMPLE = "jigsaw check server/demo plan.json"
CHECK_FAILED = 7
_SHOWN = 1000
ARGUMENTS: Arguments = {
    "instance INSTANCE": PLAN["instance INSTANCE"],
    "[plan] PLAN": "a plan document; with --proof it may be left out",
    "--proof PROOF": f"check {A_PROOF}, too",
    "--json": "print the broken rules, and the step of the proof that fails, as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from jigsaw_opt.checking import check
    from jigsaw_opt.checking.require import proof_fault
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.instances.sources import instance_from

    if arguments.plan is None and arguments.proof is None:
        raise missing_option("plan", "a plan is missing, or the proof of a bound (--proof PROOF)")
    instance = instance_from(arguments.instance)
    plan = None if arguments.plan is None else load_plan(arguments.plan)
    proof = given_proof(arguments)
    broken = () if plan is None else check(instance, plan)
    fault = None if proof is None else proof_fault(instance, proof, None if broken else plan)
    if arguments.json:
        print_json(_as_json(plan, proof, broken, fault))
    else:
        _tell(instance, arguments, (plan, broken), (proof, fault))
    return CHECK_FAILED if broken or fault else 0


def _as_json(
    plan: Plan | None, proof: BoundProof | None, broken: Sequence[Violation], fault: ProofFault | None
) -> dict[str, Any]:
    rows = [{"rule": v.rule, "path": v.path, "message": v.message, "read": v.read} for v in broken]
    told: dict[str, Any] = {} if plan is None else {"correct": not broken, "violations": rows}
    if proof is None:
        return told
    optimal = None if plan is None else not broken and fault is None and plan.objective == proof.bound
    right = {"right": fault is None, "fault": None if fault is None else fault._asdict()}
    return told | {"proof": {**right, "bound": proof.bound, "certified_optimal": optimal}}


def _tell(
    instance: Instance,
    arguments: argparse.Namespace,
    of_plan: tuple[Plan | None, Sequence[Violation]],
    of_proof: tuple[BoundProof | None, ProofFault | None],
) -> None:
    """Print what a plan breaks and which step of a proof fails, or what is right."""
    from jigsaw_opt.checking.require import of_another, wrong_proof

    (plan, broken), (proof, fault) = of_plan, of_proof
    other = None if plan is None else of_another(instance, plan)
    if other is not None:
        print(printable(f"{arguments.plan} {other}"))
    else:
        _print(broken[:_SHOWN])
        if len(broken) > _SHOWN:
            note(f"and {len(broken) - _SHOWN} more (all with --json)")
    told = [] if plan is None or broken else ["correct"]
    if proof is not None and fault is None:
        optimal = bool(told) and plan is not None and plan.objective == proof.bound
        bound = "there is no plan" if proof.bound is None else f"no plan is better than {proof.bound}"
        told.append("certified optimal" if optimal else f"{bound} (certified)")
    if told:
        print("; ".join(told))
    if fault is not None:
        note(f"error: {wrong_proof(fault)}")


def _print(violations: Sequence[Violation]) -> None:
    """Print each broken rule with where it stands, and below it every place that breaks it."""
    for (rule, read), broken in groupby(violations, key=attrgetter("rule", "read")):
        print(f"{rule} ({read})")
        for violation in broken:
            print(printable(f"  {violation.path}: {violation.message}"))

"""At the end of a solve: is the proof of its bound right? Only what the checker has found right is called certified."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Event
from time import monotonic

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.proofs import ProofFault, check_proof
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds import Bound, Proof, instant_bounds
from jigsaw_opt.solvers.certificates import prove_by_cases
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy, proof_of

_MORE_SECONDS, _MORE_SHARE = 0.25, 0.02
"""Time for the check after the time limit, in seconds and as a share of the limit: less than a solve may be late."""


def certified(instance: Instance, result: Result, started: float, options: Options) -> Result:
    """Return a result with the best proof that the checker finds right, and without a bound whose proof is wrong.

    `started`: when the time limit began, on the monotonic clock.
    """
    left = math.inf if options.time_limit is None else options.time_limit + started - monotonic()
    if options.cancel.is_set():
        left = 0.0
    limit = clock.Clock(max(0.0, left) + _MORE_SECONDS + _MORE_SHARE * (options.time_limit or 0.0), Event())
    own, lesser = proof_of(instance, Bound(result.bound, result.proof)), result.bound_proof
    result = replace(result, bound_proof=None)
    with clock.limited(limit):
        try:
            fault = None if own is None else check_proof(instance, own)
            if own is not None and fault is None:
                return replace(result, bound_proof=own)
            if lesser is not None and lesser != own and check_proof(instance, lesser) is None:
                result = replace(result, bound_proof=lesser)
        except OutOfTimeError:
            return result
    return result if fault is None else _without_bound(result, fault)


@typed
def certify(instance: Instance, result: Result, seconds: float | None = None) -> Result:
    """Search for a proof of the bound of a result that anybody can check, where it has none.

    Parameters
    ----------
    instance
        The instance of the result.
    result
        A result of `solve`.
    seconds
        Limit of the search; None for a limit of its work alone.

    Returns
    -------
    Result
        It has the best ``bound_proof`` that was found: of its bound, of a lesser one, or at least that of 0.
    """
    if result.certified:
        return result
    end = math.inf if seconds is None else monotonic() + seconds
    if monotonic() < end:
        argument = prove_by_cases(instance, result.bound, stop=lambda: monotonic() >= end)
        found = proof_of(instance, Bound(result.bound, Proof(argument=argument)))
        if found is not None and check_proof(instance, found) is None:
            return replace(result, bound_proof=found)
    least = -1 if result.bound_proof is None else result.bound_proof.bound
    for bound in reversed([*instant_bounds(compile_instance(instance))]):
        found = proof_of(instance, bound) if bound.value > least else None
        if found is not None and check_proof(instance, found) is None:
            return replace(result, bound_proof=found)
    return result


def _without_bound(result: Result, fault: ProofFault) -> Result:
    """Return a result whose bound is what else is proven, since the proof of its own is wrong."""
    found: BoundProof | None = result.bound_proof
    bound = 0 if found is None else found.bound
    told = f"the proof of the bound {result.bound} by {result.bound_by} is wrong: {fault.path} {fault.message}"
    plan = None if result.plan is None else replace(result.plan, bound=bound, status="feasible")
    return replace(
        result,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        stopped_by=StoppedBy.FAILURE,
        bound=bound,
        proof=Proof("what is proven besides", argument=None if found is None else found.argument),
        plan=plan,
        conflicts=(),
        failure=f"{told}; this is a fault of the program, please report it",
    )

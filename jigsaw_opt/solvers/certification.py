"""At the end of a solve: is the proof of its bound right? Only what the checker has found right is called certified."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Event
from time import monotonic

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.proofs import ProofFault, check_proof
from jigsaw_opt.checking.proofs.kinds.cases import MOST_CHANGES
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import OutOfTimeError, TooLargeError, mismatch
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.bound_proof import Argument, BoundProof
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds import Bound, Proof, instant_bounds, stronger_bounds
from jigsaw_opt.solvers.bounds.registry import third_party
from jigsaw_opt.solvers.case_search import prove_by_cases
from jigsaw_opt.solvers.infeasibility.refutation import quick_refutations, refutations
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy, proof_by, proof_of
from jigsaw_opt.solvers.solve_state.proofs import NO_BOUND
from jigsaw_opt.system.interrupts import on_interrupt

_MORE_SECONDS, _MORE_SHARE = 0.25, 0.02
"""Time for the check after the time limit, in seconds and as a share of the limit: less than a solve may be late."""
_CHECK_SECONDS = 10.0
"""Longest time of a check, whatever the time limit."""
_QUICK_SECONDS = 2.0
"""Longest time that a solve looks for a proof that there is no plan."""
_REPORT = "this is a fault of the program, please report it"
_WORK = 1.0
"""Seconds of a usual core for relaxations that take their time, where nobody sets a limit."""


def certified(instance: Instance, result: Result, started: float, options: Options) -> Result:
    """Return a result with the best proof that the checker finds right, and without a bound whose proof is wrong.

    `started`: when the time limit began, on the monotonic clock.
    """
    left = math.inf if options.time_limit is None else options.time_limit + started - monotonic()
    if options.cancel.is_set():
        left = 0.0
    limit = clock.Clock(max(0.0, left) + _MORE_SECONDS + _MORE_SHARE * (options.time_limit or 0.0), Event())
    own, lesser = proof_of(instance, Bound(result.bound, result.proof)), result.bound_proof
    result, fault = replace(result, bound_proof=None), None
    with suppress(OutOfTimeError, TooLargeError), clock.limited(limit):
        if result.status is Status.INFEASIBLE:
            with suppress(OutOfTimeError), clock.limited(clock.within(_QUICK_SECONDS)):
                result = _refuted(instance, result, quick_refutations(instance, result.conflicts))
            if result.certified:
                return result
        fault = None if own is None else check_proof(instance, own)
        if own is not None and fault is None:
            return replace(result, bound_proof=own)
        if lesser is not None and lesser != own and check_proof(instance, lesser) is None:
            result = replace(result, bound_proof=lesser)
        if result.bound_proof is None or not result.bound_proof.bound:
            # A bound without a right proof took the place of those before it.
            without = {*options.without_bounds, *(third_party(result.proof.relaxation) if fault else ())}
            for bound in reversed([*instant_bounds(compile_instance(instance), without)]):
                if 0 < bound.value < result.bound and is_certified(instance, bound):
                    result = replace(result, bound_proof=proof_of(instance, bound))
                    break
    return result if fault is None else _without_bound(result, fault)


@typed
def certify(instance: Instance, result: Result, seconds: float | None = None, cancel: Event | None = None) -> Result:
    """Search for a proof of a result that anybody can check: of its objective, its bound, or that there is no plan.

    Parameters
    ----------
    instance
        The instance of the result.
    result
        A result of `solve`. If its bound has a proof already, only a proof that its objective is optimal is sought.
    seconds
        Limit of the search; None for a limit of its work alone.
    cancel
        Set by another thread, it ends the search; so does a first Ctrl-C or SIGTERM in the main thread.

    Returns
    -------
    Result
        It has the best ``bound_proof`` that was found: that there is no plan where its status is ``infeasible``; else
        of its bound, of a lesser one, or at least that of 0. If more than its bound is proven, that is its bound.
        ``proof`` and ``bound_by`` name what was found for the bound. Where the search was ended before it was
        complete, ``stopped_by`` is ``interrupt``.

    Raises
    ------
    UsageError
        The result is of another instance.
    """
    own = instance_sha256(instance)
    if any(part is not None and part.instance_sha256 != own for part in (result.plan, result.bound_proof)):
        raise mismatch("result", f"the result is of another instance than {instance.name!r}")
    cancel = cancel or Event()
    left = min(clock.left(), math.inf if seconds is None else seconds)
    limit = clock.Clock(left, cancel, _MORE_SECONDS, clock.current())
    with on_interrupt(cancel.set), suppress(OutOfTimeError, TooLargeError), clock.limited(limit):
        for found in _more_certified(instance, result, left):
            result = found
            if result.certified and result.objective in (None, result.bound):
                return result
    result = replace(result, bound_proof=result.bound_proof or proof_of(instance, NO_BOUND))
    return replace(result, stopped_by=StoppedBy.INTERRUPT) if cancel.is_set() and not result.failure else result


def _more_certified(instance: Instance, result: Result, seconds: float) -> Iterator[Result]:
    """Yield a result, and then with each better proof that is found."""
    yield result
    if result.status is Status.INFEASIBLE:
        work, is_over = _WORK if seconds == math.inf else seconds, partial(_is_over, monotonic() + seconds)
        yield _refuted(instance, result, refutations(instance, result.conflicts, work, is_over))
        return
    for bounds in _arguable(instance, result, seconds):
        for bound in bounds:
            least = result.certified_bound
            if (least is None or least < bound.value) and is_certified(instance, bound):
                result = _with_proof(result, bound, proof_of(instance, bound))
                yield result
        if result.certified:
            return


def _arguable(instance: Instance, result: Result, seconds: float) -> Iterator[Iterable[Bound]]:
    """Yield bounds that may have a proof, each group for where those before leave the bound without one.

    First come relaxations that are quick and, with a quarter of the work for cases, a greater objective; then the bound
    by cases; then relaxations that take their time.
    """
    end, operations = monotonic() + seconds / 2, compile_instance(instance)
    instant = [*instant_bounds(operations)]
    first: Iterator[Bound] = reversed(instant)
    if result.objective is not None and result.objective > result.bound:
        first = chain(first, _by_cases(instance, result.objective, 4, end))
    yield first
    yield _by_cases(instance, result.bound, 1, end)
    work = _WORK if seconds == math.inf else seconds
    is_over = partial(_is_over, end + seconds / 2)
    yield reversed([*stronger_bounds(operations, instant[-1].value, work, is_over)])


def _by_cases(instance: Instance, value: int, share: int, end: float) -> Iterator[Bound]:
    """Yield a bound, with a proof by cases if one `share` of the work and of the time until `end` finds it."""
    until = monotonic() + (end - monotonic()) / share
    argument = prove_by_cases(instance, value, MOST_CHANGES // share, partial(_is_over, until))
    yield Bound(value, Proof(f"no plan is left in any case of a tree below {value}", argument=argument))


def _is_over(end: float) -> bool:
    return monotonic() >= end or clock.left() <= 0.0


def is_certified(instance: Instance, bound: Bound) -> bool:
    """Return whether a bound has a proof that the checker finds right within the time limit and ten seconds."""
    return _is_right(instance, proof_of(instance, bound))


def _is_right(instance: Instance, proof: BoundProof | None) -> bool:
    with suppress(OutOfTimeError), clock.limited(clock.within(_CHECK_SECONDS)):
        return proof is not None and check_proof(instance, proof) is None
    return False


def _refuted(instance: Instance, result: Result, arguments: Iterable[Argument]) -> Result:
    """Return an infeasible result with the first right proof that there is no plan."""
    proofs = (proof_by(instance, None, argument) for argument in arguments)
    right = next((proof for proof in proofs if _is_right(instance, proof)), None)
    return replace(result, bound_proof=right or result.bound_proof)


def _with_proof(result: Result, bound: Bound, found: BoundProof | None) -> Result:
    """Return a result with a right proof; its bound is what that proves, if it is more."""
    value, least = bound.value, result.objective
    if value < result.bound:
        return replace(result, bound_proof=found)
    if least is not None and value > least:
        told = f"a plan of {least} and a proof that none is better than {value} are both found right"
        return replace(result, stopped_by=StoppedBy.FAILURE, failure=f"{told}; {_REPORT}")
    plan, status = result.plan, Status.OPTIMAL if value == least else result.status
    if plan is not None:
        plan = replace(plan, bound=value, status="optimal" if value == least else plan.status)
    return replace(result, status=status, bound=value, proof=bound.proof, bound_proof=found, plan=plan)


def _without_bound(result: Result, fault: ProofFault) -> Result:
    """Return a result whose bound is what else is proven, since the proof of its own is wrong."""
    found: BoundProof | None = result.bound_proof
    bound = result.certified_bound or 0
    told = f"the proof of the bound {result.bound} by {result.bound_by} is wrong: {fault.path}: {fault.message}"
    others = ", ".join(map(repr, third_party(result.proof.relaxation)))
    blame = f"this is a fault of the plug-in {others}" if others else _REPORT
    plan = None if result.plan is None else replace(result.plan, bound=bound, status="feasible")
    return replace(
        result,
        status=Status.UNKNOWN if plan is None else Status.FEASIBLE,
        stopped_by=StoppedBy.FAILURE,
        bound=bound,
        proof=Proof("what is proven besides", argument=None if found is None else found.argument),
        plan=plan,
        trajectory=tuple(event._replace(bound=min(event.bound, bound)) for event in result.trajectory),
        conflicts=(),
        failure=f"{told}; {blame}",
    )

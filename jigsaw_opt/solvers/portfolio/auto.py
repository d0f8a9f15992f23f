"""`auto`: plans that list all iterations, phased ones, or both, by what is installed and fits the instance."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.compiled.operations import is_long
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.cpsat import CPSAT
from jigsaw_opt.solvers.greedy.solver import GREEDY, offer_greedy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.portfolio.portfolio import PORTFOLIO
from jigsaw_opt.solvers.registry import find, ignored, refusal
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import GeneralSolver, Solver

_SHORT = 1.0
"""Seconds of the clock below which greedy comes first, so that no plan is worse: engines take a part to load."""
_MANY_OPERATIONS = 1_000_000
"""Above so many operations a plan that lists them takes long, and a phased one is made as well."""
_SHARE = 0.3
"""Share of the time for the phased plan."""
_OPERATIONS_A_SECOND = 150_000
"""Operations of a listed plan that a slow core schedules, checks and writes in a second."""


@dataclass(frozen=True, slots=True)
class Auto(GeneralSolver):
    """Lets the methods work that fit: on short jobs one that lists all iterations, on long ones `phased` as well.

    Of short jobs that have no plan after most of the time, a phased one is tried, which is sooner there.
    """

    name: str = "auto"
    display_name: str = "portfolio, or greedy where OR-Tools is not installed; phased plans of long jobs"
    chooses: bool = True

    moves: ClassVar[bool] = True

    def choose(self, instance: Instance) -> Solver:
        """Return what makes plans that list all iterations, for this installation and an instance."""
        installed = [method for method in (PORTFOLIO, CPSAT) if method.unavailable() is None]
        return next((method for method in installed if refusal(method, instance) is None), GREEDY)

    def run(self, solve_state: SolveState) -> Result:
        """Let the methods work that fit, one after the other; the result names the one with the best plan."""
        return solve_state.conclude(partial(_either, solve_state, self.choose(solve_state.operations.instance)))


AUTO = Auto()
"""The solver registered as ``auto``."""


def _either(solve_state: SolveState, listing: Solver) -> StoppedBy | None:
    """Make plans that list all iterations, phased ones, or both; return why the last method ended."""
    instance, options, phased = solve_state.operations.instance, solve_state.options, find("phased")
    kept = {opening.phased for opening in solve_state.openings if opening.keeps}
    may_list, may_have_phases = kept <= {False, None}, kept <= {True, None} and _may_repeat(instance, options)
    from_phases = any(opening.from_phases for opening in solve_state.openings)
    if may_list and not from_phases and (not may_have_phases or is_listed_first(instance, options)):
        again = may_have_phases and len(instance.jobs) > 1 and options.work_limit is None
        found = _listed(solve_state, listing, 1 - _SHARE if again else 1.0)
        if not again or solve_state.least is not None or solve_state.reason() is not None:
            return found.stopped_by
        return solve_state.delegate(phased, _rest(solve_state)).stopped_by
    may_list = may_list and _is_listed(instance, options)
    own = _rest(solve_state, _SHARE if may_list else 1.0)
    found = solve_state.delegate(phased, own)
    solve_state.spend(own.work_limit or 0.0)
    if not may_list or solve_state.reason() is not None:
        return found.stopped_by
    found = _listed(solve_state, listing, options=_rest(solve_state))
    if from_phases or options.time_limit is None or solve_state.reason() is not None:
        return found.stopped_by
    # The listed plan took less than its time, which helps the phased one.
    return solve_state.delegate(phased, _rest(solve_state)).stopped_by


def _listed(
    solve_state: SolveState, method: Solver, without_plan: float = 1.0, options: Options | None = None
) -> Result:
    """Make a plan that lists all iterations."""
    left = solve_state.remaining
    if method is not GREEDY and left is not None and left < _SHORT:
        with suppress(OutOfTimeError):
            offer_greedy(solve_state, solve_state.operations, solve_state.options.seed)
    return solve_state.delegate(method, options, without_plan)


def _rest(solve_state: SolveState, share: float = 1.0) -> Options:
    """Return the options with a share of the time and of the work that are left."""
    left = solve_state.remaining, solve_state.options.work_limit
    seconds, work = (None if own is None else share * own for own in left)
    return replace(solve_state.options, time_limit=seconds, work_limit=work)


def is_listed_first(instance: Instance, options: Options) -> bool:
    """Return whether a phased plan is made only where no plan that lists all iterations is found, or not at all."""
    moves = any(job.restart_us is not None for job in instance.jobs)  # Only phases have moves.
    return not (moves or is_long(instance, _MANY_OPERATIONS)) or not _may_repeat(instance, options)


def _may_repeat(instance: Instance, options: Options) -> bool:
    # Other cores help a plan that lists all iterations, and rule no phased one out.
    return not ignored(find("phased"), replace(options, ray=None)) and refusal(find("phased"), instance) is None


def _is_listed(instance: Instance, options: Options) -> bool:
    """Return whether a plan that lists all iterations can be made within what a phased one leaves of the limits."""
    # To schedule, check and write the plan must fit there. A unit of work is about a second.
    limits = [limit for limit in (options.time_limit, options.work_limit) if limit is not None]
    left = (int((1 - _SHARE) * limit * _OPERATIONS_A_SECOND) for limit in limits)
    return not is_long(instance) and not any(is_long(instance, most) for most in left)

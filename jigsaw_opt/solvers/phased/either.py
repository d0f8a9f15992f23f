"""One call for short and long jobs: a plan that lists all iterations, a phased one, or the better of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.listed import Opening, solve_listed
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased.solver import PHASED, is_long, solve_phased
from jigsaw_opt.solvers.registry import ignored, refusal
from jigsaw_opt.solvers.result import Report, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

_MANY_OPERATIONS = 1_000_000
"""Above so many operations a plan that lists them takes long, and a phased one is made as well."""
_SHARE = 0.3
"""Share of the time for the phased plan."""
_OPERATIONS_A_SECOND = 150_000
"""Operations of a listed plan that a slow core schedules, checks and writes in a second."""


def solve_either(
    instance: Instance,
    options: Options,
    on_event: Report | None = None,
    opening: Opening | None = None,
    started: float | None = None,
) -> Result:
    """Solve by ``auto``, as a phased plan, or by both where jobs are so long that either may be better.

    Where ``auto`` has no plan of short jobs, a phased one is tried, which is sooner there. With options that phased
    plans are not made with, none is.

    Parameters
    ----------
    instance
        A valid one, of either horizon.
    options
        Limits, seed and cores.
    on_event
        Receives the progress stream of ``auto``; a phased plan has none.
    opening
        What comes before ``auto``.
    started
        When its time begins, on the monotonic clock; None for now.

    Raises
    ------
    TooLargeError
        It is too long for a plan that lists all iterations, and the options ask for one.
    MissingEngineError
        What ``auto`` needs is not installed.
    """
    started = time.monotonic() if started is None else started
    if is_listed_first(instance, options):
        return _listed_or_phased(instance, options, on_event, opening, started)
    found = solve_from_phased(instance, options, partial(solve_phased, instance), on_event, opening, started)
    if not _is_listed(instance, options.time_limit):
        return found
    left = _within(options, 1.0, started)
    if _is_proven(found) or options.cancel.is_set() or not left.time_limit:
        return found
    # The listed plan took less than its time, which helps the phased one.
    return _better(found, solve_phased(instance, left))


def solve_from_phased(
    instance: Instance,
    options: Options,
    phased: Callable[[Options], Result],
    on_event: Report | None = None,
    opening: Opening | None = None,
    started: float | None = None,
) -> Result:
    """Solve by ``auto`` from a phased plan: as a phased plan, and by listed ones where these can be made."""
    started = time.monotonic() if started is None else started
    if not _is_listed(instance, options.time_limit):
        return phased(_within(options, 1.0, started))
    found = phased(_within(options, _SHARE, started))
    within = _within(options, 1.0, started)
    if _is_proven(found) or options.cancel.is_set() or (within.time_limit is not None and not within.time_limit):
        return found
    return _better(solve_listed(instance, "auto", within, on_event, opening), found)


def is_listed_first(instance: Instance, options: Options) -> bool:
    """Return whether a phased plan is made only where no plan that lists all iterations is found, or not at all."""
    moves = any(job.restart_us is not None for job in instance.jobs)  # Only phases have moves.
    return not (moves or is_long(instance, _MANY_OPERATIONS)) or not _may_be_phased(instance, options)


def _may_be_phased(instance: Instance, options: Options) -> bool:
    return not ignored(PHASED, options) and refusal(PHASED, instance) is None


def _listed_or_phased(
    instance: Instance, options: Options, on_event: Report | None, opening: Opening | None, started: float
) -> Result:
    """Return a plan that lists all iterations, or where there is none a phased one.

    Of a time limit, the phased plan has the last part, if there is no other by then.
    """
    within = _within(options, 1.0, started)
    if len(instance.jobs) == 1 or not _may_be_phased(instance, options):
        return solve_listed(instance, "auto", within, on_event, opening)

    def hurried(solve_state: SolveState) -> None:
        if within.time_limit is not None:
            # The rule ends `auto` early only while it has no plan. Otherwise it has the whole limit.
            solve_state.end_without_plan((1 - _SHARE) * within.time_limit)
        if opening is not None:
            opening(solve_state)

    listed = solve_listed(instance, "auto", within, on_event, hurried)
    if listed.plan is not None or _is_proven(listed) or options.cancel.is_set():
        return listed
    return _better(listed, solve_phased(instance, _within(options, 1.0, started)))


def _is_listed(instance: Instance, limit: float | None) -> bool:
    """Return whether a plan that lists all iterations can be made in the time that is left after a phased one."""
    # To schedule, check and write the plan must fit into the time that the phased plan leaves.
    in_time = limit is None or not is_long(instance, int((1 - _SHARE) * limit * _OPERATIONS_A_SECOND))
    return in_time and not is_long(instance)


def _within(options: Options, share: float, started: float) -> Options:
    if options.time_limit is None:
        return options
    left = started + options.time_limit - time.monotonic()
    return replace(options, time_limit=max(0.0, share * left))


def _is_proven(result: Result) -> bool:
    return result.status in (Status.OPTIMAL, Status.INFEASIBLE)


def _better(listed: Result, phased: Result) -> Result:
    """Return the result with the better plan, with the larger of both bounds, for either holds for all plans."""
    is_phased = phased.objective is not None and (listed.objective is None or phased.objective < listed.objective)
    best, other = (phased, listed) if is_phased else (listed, phased)
    # Both together looked at all, one after the other.
    best = replace(best, part="", seconds=listed.seconds + phased.seconds)
    if other.bound <= best.bound:
        return best
    best = replace(best, bound=other.bound, proof=other.proof)
    if best.plan is None or best.objective is None:
        return best
    is_optimal = best.objective <= best.bound
    plan = replace(best.plan, bound=best.bound, status="optimal" if is_optimal else "feasible")
    if is_optimal:
        best = replace(best, status=Status.OPTIMAL, stopped_by=StoppedBy.PROOF)
    return replace(best, plan=plan)

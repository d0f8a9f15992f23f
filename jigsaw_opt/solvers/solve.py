"""The one way to solve an instance, anew or from a plan: options are put together, and a method is chosen for them.

What imports the search is imported inside functions: other methods have no need of it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

from jigsaw_opt.checking import violations
from jigsaw_opt.errors import (
    InvalidInputError,
    Problem,
    UsageError,
    argument,
    kind_of,
    missing_option,
    not_together,
    require_a,
    unsupported,
)
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.listed import Opening, find_solver, offering, solve_listed
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.registry import Solver, find, refusal, require_options
from jigsaw_opt.solvers.result import Report, Result, Status, StoppedBy

if TYPE_CHECKING:
    from jigsaw_opt.solvers.resolve import Fix
    from jigsaw_opt.solvers.solve_state import SolveState

_MOST_OFFERED = 200_000
"""Operations up to which a listed solve begins with the iterations of a phased plan, one by one."""


def solve(
    instance: Instance,
    method: str | Solver = "auto",
    options: Options | None = None,
    *,
    start: Plan | None = None,
    fix: Fix | None = None,
    on_event: Report | None = None,
    **option: Unpack[GivenOptions],
) -> Result:
    """Solve an instance and return a checked plan with a proven bound.

    Parameters
    ----------
    instance
        What is to be scheduled.
    method
        Name of a registered solver, or a solver; or ``phased``, which makes a phased plan. Any other makes one that
        lists all iterations, but ``auto`` makes a phased one where that is better or all that can be had.
    options
        Limits, seed, threads. Called in the main thread, the solve ends at the first Ctrl-C with the best plan so far,
        and at SIGTERM and SIGHUP where those would end the program. A handler of Ctrl-C that the program has
        installed is called too; its other handlers, and signals that it ignores, are left to it.
    start
        A correct plan, which the result is no worse than; with `fix`, a plan of another instance, where jobs of the
        same name do what they can of it. A phased one is taken by ``auto`` and ``phased``.
    fix
        What of `start` must stay, which ``auto`` and ``phased`` see to; ``Fix()`` for nothing. None where `start` is of
        the same instance.
    on_event
        Receives the progress stream, in threads of the solver, one event at a time. The solver waits for it. What it
        raises ends the solve and is raised from here. Phased plans have none.
    **option
        Options one by one, as in ``time_limit=10``.

    Returns
    -------
    Result
        Its bound is one with nothing fixed. The status is ``unknown`` where no plan was found.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document, the start one of plans, or what is fixed cannot hold; with every
        problem and its path.
    UsageError
        The method does not exist, does not take the instance, an option or a start, or has no such engine.
    MissingEngineError
        The method's engine is not installed.
    PluginError
        The solver does not load, or is not one of this package and raised an exception, which is its cause.
    TooLargeError
        It is too large for a plan that lists all iterations.
    WrongPlanError
        The plan that was made did not pass `check`.
    """
    begun, asked = time.monotonic(), options_of(options, option)
    require_a(Instance, instance)
    _require_types(start, fix, on_event)
    if start is not None and start.is_phased:
        _require_phases(method, asked)
    if start is not None and asked.survivable:
        told = f"{argument('survivable')} makes a plan anew; leave out {argument('start')}"
        raise not_together("survivable", told)
    if start is None:
        if fix is not None and not fix.empty:
            raise missing_option("fix", "what is fixed is part of a plan: give it as start")
        return _solved(instance, method, asked, on_event, None, begun)
    return _started(instance, method, asked, start, fix, on_event, begun)


def _started(
    instance: Instance,
    method: str | Solver,
    asked: Options,
    start: Plan,
    fix: Fix | None,
    on_event: Report | None,
    begun: float,
) -> Result:
    """Return the result from a plan of the instance, or of another one."""
    from jigsaw_opt.solvers.phased import resolve_phased, solve_from_phased, solve_phased
    from jigsaw_opt.solvers.resolve import Fix
    from jigsaw_opt.solvers.resolve.kept_order import timetable_in

    if fix is None:
        _require_correct(instance, start)
    elif _is_carried_over(instance, method, start, fix):
        result = _resolved(instance, method, asked, start, fix, on_event)
        return _no_worse(result, start) if fix.empty and _is_worse(result, instance, start) else result
    if not start.is_phased:
        opening = offering([timetable_in(_in_order(instance, start))])
        result = _solved(instance, method, asked, on_event, opening, begun)
    else:
        anew = bool(instance.task_graph_jobs or instance.cluster.power_caps)  # Of such, none is carried over.
        phased = partial(solve_phased, instance) if anew else partial(resolve_phased, instance, start, Fix())
        if method == "auto":
            result = solve_from_phased(instance, asked, phased, on_event, _listing(instance, start), begun)
        else:
            result = phased(asked)
    return _no_worse(result, start) if asked.condition is None else result


def _require_types(start: object, fix: object, on_event: object) -> None:
    if start is not None:
        require_a(Plan, start, "start")
    if fix is not None:
        from jigsaw_opt.solvers.resolve import Fix

        require_a(Fix, fix)
    if on_event is not None and not callable(on_event):
        raise UsageError(f"on_event is a function, not {kind_of(on_event)}", code="wrong-type", path="on_event")


def _solved(
    instance: Instance,
    method: str | Solver,
    options: Options,
    on_event: Report | None,
    opening: Opening | None,
    begun: float,
) -> Result:
    if options.survivable:
        from jigsaw_opt.solvers.resolve.survivable import solve_survivable

        return solve_survivable(instance, method, replace(options, survivable=False), on_event)
    if method == "auto":
        from jigsaw_opt.solvers.phased import solve_either

        return _ended(solve_either(instance, options, on_event, opening, begun), options, begun)
    return solve_listed(instance, method, options, on_event, opening)


def _ended(result: Result, options: Options, begun: float) -> Result:
    """Return a result, ended by time where that is over without a plan, though one of its methods ran to its end."""
    if result.plan is not None or result.stopped_by is not StoppedBy.COMPLETED or options.time_limit is None:
        return result
    over = time.monotonic() - begun >= options.time_limit
    return replace(result, stopped_by=StoppedBy.TIME) if over else result


def _is_carried_over(instance: Instance, method: str | Solver, start: Plan, fix: Fix) -> bool:
    """Return whether jobs are matched by name, as of a plan of another instance: always by what repairs such plans."""
    from jigsaw_opt.solvers.resolve.warm import Warm

    repairs = (method == "auto" or start.is_phased) and refusal(Warm(start, fix), instance) is None
    return repairs or not fix.empty or bool(violations(instance, start))


def _resolved(
    instance: Instance, method: str | Solver, options: Options, start: Plan, fix: Fix, on_event: Report | None
) -> Result:
    """Return the result from the plan of another instance: repaired by `resolve`, or as a start for another method."""
    from jigsaw_opt.solvers.phased import PHASED, resolve_phased, solve_from_phased
    from jigsaw_opt.solvers.resolve import resolve
    from jigsaw_opt.solvers.resolve.warm import Warm, offer_repaired

    if method == PHASED.name and not start.is_phased and fix.empty:
        return solve_listed(instance, method, options)  # What a phased plan keeps, it keeps of another one.
    if start.is_phased or method == PHASED.name:
        phased = partial(resolve_phased, instance, start, fix)
        return (
            solve_from_phased(instance, options, phased, on_event)
            if method == "auto" and fix.empty
            else phased(options)
        )
    reason = refusal(Warm(start, fix), instance)
    if reason is not None:
        raise unsupported("start", f"no other plan is carried over to instance {instance.name!r}: {reason}")
    if method != "auto" and not fix.empty:
        name = find_solver(method).name
        raise unsupported("fix", f"solver {name!r} keeps nothing of a plan; auto does what {argument('fix')} asks")
    if method == "auto":
        return resolve(instance, start, fix, options, on_event)
    return solve_listed(instance, method, options, on_event, partial(offer_repaired, plan=start))


def _require_phases(method: str | Solver, options: Options) -> None:
    """Refuse methods that take no phased plan to start from, and options that none is made with."""
    require_options(find("phased"), options)
    if method not in ("auto", "phased"):
        name = find_solver(method).name
        raise unsupported("start", f"solver {name!r} lists all iterations, and the plan to start from is phased")


def _require_correct(instance: Instance, start: Plan) -> None:
    """Refuse a start that is no plan of the instance, with every rule that it breaks."""
    broken = violations(instance, start)
    if broken:
        hint = "with fix=Fix() it may be of another instance"
        raise InvalidInputError(
            [
                Problem(f"start: {violation.path}", f"{violation.rule}: {violation.message}", hint, code="broken-rule")
                for violation in broken
            ]
        )


def _listing(instance: Instance, start: Plan) -> Opening | None:
    """Return an opening that offers a phased plan with its iterations listed; None where jobs move or it is too long.

    Only moves make a difference (specification: phased-plans).
    """
    from jigsaw_opt.solvers.phased import is_long
    from jigsaw_opt.solvers.resolve.kept_order import timetable_in
    from jigsaw_opt.solvers.resolve.remaining import listed

    if instance.moving_jobs or is_long(instance, _MOST_OFFERED):
        return None

    def offer(solve_state: SolveState) -> None:
        solve_state.offer(timetable_in(_in_order(instance, listed(start))))

    return offer


def _in_order(instance: Instance, plan: Plan) -> Plan:
    """Return the plan with its jobs in the order of the instance."""
    jobs = {job.name: job for job in plan.jobs}
    return plan.with_jobs(tuple(jobs[job.name] for job in instance.jobs))


def _is_worse(result: Result, instance: Instance, start: Plan) -> bool:
    """Return whether a result is worse than its start, if that is a plan of the instance; a repair may lack time."""
    worse = result.objective is None or result.objective > start.objective
    return worse and not violations(instance, start)


def _no_worse(result: Result, start: Plan) -> Result:
    """Return the result, or the start with its bound where a method that takes no start has found nothing better."""
    if result.objective is not None and result.objective <= start.objective:
        return result
    bound = min(result.bound, start.objective)
    is_best = bound == start.objective
    plan = replace(start, bound=bound, status="optimal" if is_best else "feasible")
    status = Status.OPTIMAL if is_best else Status.FEASIBLE
    return replace(result, plan=plan, objective=start.objective, bound=bound, status=status, conflicts=())

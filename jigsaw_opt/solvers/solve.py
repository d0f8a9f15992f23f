"""The one way to solve an instance, anew or from a plan: a request is put together, and a method carries it out.

What imports the search is imported inside functions: other methods have no need of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking import violations
from jigsaw_opt.errors import InvalidInputError, Problem, argument, missing_option, not_together, unsupported
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.registry import find, require_options
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Report, Result
from jigsaw_opt.solvers.run import find_solver, run
from jigsaw_opt.solvers.solve_state.request import Opening, Request, Solver


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
        Name of a registered solver, or a solver. ``phased`` makes phased plans; any other makes plans that list all
        iterations, but ``auto`` makes a phased one where that is better or all that can be had.
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
        raises ends the solve and is raised from here.
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
    request = Request(instance, options_of(options, option))
    _require_types(instance, start, fix, on_event)
    if request.options.survivable:
        from jigsaw_opt.solvers.resolve.survivable import solve_survivable

        if start is not None:
            told = f"{argument('survivable')} makes a plan anew; leave out {argument('start')}"
            raise not_together("survivable", told)
        return solve_survivable(request, find_solver(method), on_event)
    if start is None:
        if fix is not None and not fix.empty:
            raise missing_option("fix", f"what is fixed is part of a plan: give it as {argument('start')}")
        return run(request, method, on_event)
    openings = _openings(request, find_solver(method), start, fix)
    conditions = () if fix is None or fix.empty or start.is_phased else (partial(_keeps, start, fix),)
    return run(replace(request, openings=openings, conditions=conditions), method, on_event)


@typed
def _require_types(instance: Instance, start: Plan | None, fix: Fix | None, on_event: Report | None) -> None:
    """Refuse arguments of other types; those of options are refused with all else that is wrong of them."""


def _openings(request: Request, method: Solver, start: Plan, fix: Fix | None) -> tuple[Opening, ...]:
    """Return what offers first plans from a plan of the instance, or of another one."""
    from jigsaw_opt.solvers.phased.continued import Continued
    from jigsaw_opt.solvers.resolve.openings import StartPlan
    from jigsaw_opt.solvers.resolve.repaired import Repaired

    instance = request.instance
    chooses, phased = getattr(method, "chooses", False), getattr(method, "phased", False)
    if start.is_phased and not chooses and not phased:
        told = f"solver {method.name!r} lists all iterations, and the plan to start from is phased"
        raise unsupported("start", told)
    if start.is_phased:
        require_options(find("phased"), request.options)
    if fix is not None and not fix.empty and not (chooses or (phased and start.is_phased)):
        raise unsupported(
            "fix", f"solver {method.name!r} keeps nothing of a plan; auto does what {argument('fix')} asks"
        )
    cannot = instance.beyond(Continued.lacks) if start.is_phased else None
    broken = violations(instance, start)
    if fix is None and broken:
        hint = "with fix=Fix() it may be of another instance"
        raise InvalidInputError(
            [Problem(f"start: {one.path}", f"{one.rule}: {one.message}", hint, code="broken-rule") for one in broken]
        )
    cut = instance.beyond(("task_graphs", "power_caps", "held_capacities"))
    if cut is not None and fix is not None and fix.moment and not start.is_phased:
        raise unsupported("fix", f"nothing before a moment is kept in instance {instance.name!r}: {cut}")
    if cannot is not None and (broken or (fix is not None and not fix.empty)):
        raise unsupported("start", f"no other plan is carried over to instance {instance.name!r}: {cannot}")
    openings: list[Opening] = [StartPlan(start)] if not broken and (fix is None or fix.empty) else []
    if cannot is None and start.is_phased:
        openings.append(Continued(start, fix or Fix()))
    elif cannot is None and fix is not None:
        openings.insert(0, Repaired(start, fix, improves=chooses))
    return tuple(openings)


def _keeps(start: Plan, fix: Fix, operations: Operations, timetable: Timetable) -> bool:
    """Return whether a plan keeps what is fixed of another one."""
    from jigsaw_opt.solvers.resolve.fix import breaches

    return not any(breaches(timetable.plans, start, fix))

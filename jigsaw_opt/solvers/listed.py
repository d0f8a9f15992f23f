"""A plan that lists all iterations or repeats one period: compile once, then certain causes, the method, the check."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from jigsaw_opt.errors import JigsawError, MissingEngineError, OutOfTimeError, PluginError, unsupported
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds import Bound, Proof
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.engines.parameters import require_parameters
from jigsaw_opt.solvers.infeasibility import certain_causes, too_wide
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.proofs import NO_BOUND, first_bound, searched_part
from jigsaw_opt.solvers.registry import Solver, find, require_options, require_solver, require_taken
from jigsaw_opt.solvers.result import Conflict, Event, Report, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.system.interrupts import on_interrupt

_LOGGER = logging.getLogger(__name__)

Opening = Callable[[SolveState], None]
"""What a solve does before its method: it offers first plans, or adds a rule to stop by."""


def solve_listed(
    instance: Instance,
    method: str | Solver,
    options: Options,
    on_event: Report | None = None,
    opening: Opening | None = None,
) -> Result:
    """Solve an instance by one method, and check the plan."""
    report = on_event or _ignore
    solver = find_solver(method)
    _require(solver, instance, options)
    limit = clock.Clock(options.time_limit, options.cancel, options.grace)
    _LOGGER.info("solving %r with %s", instance.name, solver.name)
    with on_interrupt(options.cancel.set):
        if callable(solver) and _is_own(solver):  # It cuts no long jobs, and checks its plan.
            result = solver(instance, options, report)
        else:
            with clock.limited(limit):
                result = _solved(solver, instance, options, report, opening)
            result = _checked(instance, result)
    told = (result.status, result.objective, result.bound, result.stopped_by, result.seconds)
    _LOGGER.info("%r is solved: %s, objective %s, bound %s, stopped by %s after %.2f s", instance.name, *told)
    return result


def offering(timetables: Iterable[Timetable]) -> Opening:
    """Return an opening that offers plans."""

    def offer(solve_state: SolveState) -> None:
        for timetable in timetables:
            solve_state.offer(timetable)

    return offer


def find_solver(solver: str | Solver) -> Solver:
    """Return the solver of a name, or a solver itself; refuse what is none."""
    if isinstance(solver, str):
        return find(solver)
    require_solver(getattr(solver, "name", str(solver)), solver)
    return solver


def acting(method: Solver, instance: Instance) -> Solver:
    """Return the method that a solve of an instance comes down to: the one that `auto` chooses, or the same."""
    if method.name != "auto":
        return method
    from jigsaw_opt.solvers.portfolio.auto import Auto  # Here, as it imports all methods.

    return method.choose(instance) if isinstance(method, Auto) else method


def _solved(method: Solver, instance: Instance, options: Options, report: Report, opening: Opening | None) -> Result:
    """Return the method's result, without a plan where a certain cause rules out all plans, or time is over at once.

    Whatever is raised once the time is over ends here, also where a solver of others lets it through.
    """

    def none(status: Status, stopped_by: StoppedBy, bound: Bound, causes: tuple[Conflict, ...] = ()) -> Result:
        return Result(
            status=status,
            stopped_by=stopped_by,
            objective=None,
            bound=bound.value,
            plan=None,
            proof=bound.proof,
            conflicts=causes,
            solver=method.name,
            seed=options.seed,
            threads=options.threads,
        )

    try:
        # Before anything is compiled: the operations of workers that no cluster holds might not fit into memory.
        causes = too_wide(instance)
        if causes:
            return none(Status.INFEASIBLE, StoppedBy.PROOF, Bound(0, Proof("there is no plan")), causes)
        operations = compile_instance(instance)
        causes = certain_causes(operations)
        if causes:
            return none(Status.INFEASIBLE, StoppedBy.PROOF, first_bound(operations, options), causes)
        run = _run if _is_own(method) else _run_of_others
        return run(method, operations, options, report, opening)
    except OutOfTimeError:
        return none(Status.UNKNOWN, StoppedBy.INTERRUPT if options.cancel.is_set() else StoppedBy.TIME, NO_BOUND)


def _is_own(method: Solver) -> bool:
    return type(method).__module__.startswith("jigsaw_opt.")


def _run(method: Solver, operations: Operations, options: Options, report: Report, opening: Opening | None) -> Result:
    if callable(method):
        return method(operations.instance, options, report)
    part = searched_part(acting(method, operations.instance), operations)
    solve_state = SolveState(method.name, operations, options, report, part)
    if opening is not None:
        opening(solve_state)
    return method.run(solve_state)


def _run_of_others(
    method: Solver, operations: Operations, options: Options, report: Report, opening: Opening | None
) -> Result:
    """Run as `_run`; an exception then names the solver, but one of the receiver of events stays as it is."""
    of_report: list[Exception] = []

    def reported(event: Event) -> None:
        try:
            report(event)
        except Exception as error:
            of_report.append(error)
            raise

    try:
        result = _run(method, operations, options, reported, opening)
    except (JigsawError, MemoryError):
        raise
    except Exception as error:
        if error in of_report:
            raise
        raise PluginError(f"the solver {method.name!r} raised {type(error).__name__}: {error}") from error
    return _of_all_plans(result, searched_part(method, operations), first_bound(operations, options))


def _of_all_plans(result: Result, part: str, bound: Bound) -> Result:
    """Return a result without what its method has proven of the plans that it looks at alone."""
    if not part or result.part:  # Results by a `SolveState` state their part, and their bound holds for all.
        return result
    result = replace(result, part=part)
    if result.bound > bound.value:
        result = replace(result, bound=bound.value, proof=bound.proof)
    best = result.objective is not None and result.objective <= bound.value
    if best or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return result
    status = Status.UNKNOWN if result.plan is None else Status.FEASIBLE
    return replace(result, status=status, stopped_by=StoppedBy.COMPLETED, conflicts=())


def _require(method: Solver, instance: Instance, options: Options) -> None:
    missing = method.unavailable()
    if missing is not None:
        raise MissingEngineError(f"the engine of solver {method.name!r}", missing)
    require_taken(method, instance)
    told, given = f"solver {method.name!r}", method
    method = acting(method, instance)
    if method is not given:
        told += f", which is {method.name!r} here,"
    engines: tuple[str, ...] = getattr(method, "engines", ())
    if options.engine_parameters or options.engine_log is not None:
        if not engines:
            refused = "engine_parameters" if options.engine_parameters else "engine_log"
            told += " hands no parameters and no log through to an engine"
            raise unsupported(refused, told)
        require_parameters(engines[0], options.engine_parameters)
    require_options(method, options, told)


def _checked(instance: Instance, result: Result) -> Result:
    if result.plan is None:
        return result
    require_correct(instance, result.plan, f"solver {result.solver!r}")
    return replace(result, objective=result.plan.objective)


def _ignore(event: Event) -> None:
    """Drop an event of the progress stream."""

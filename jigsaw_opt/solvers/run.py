"""How a method carries out a request: compile once, then certain causes, first plans, the method, the check."""

from __future__ import annotations

import logging
from dataclasses import replace

from jigsaw_opt.errors import MissingEngineError, OutOfTimeError, PluginError, unsupported
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.solvers.bounds import Bound, Proof
from jigsaw_opt.solvers.certification import certified
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.engines.parameters import require_parameters
from jigsaw_opt.solvers.infeasibility.certain import certain_causes, too_wide
from jigsaw_opt.solvers.registry import find, require_options, require_solver, require_taken
from jigsaw_opt.solvers.result import Conflict, Event, Report, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.proofs import NO_BOUND, first_bound, searched_part
from jigsaw_opt.solvers.solve_state.request import Request, Solver
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.system.plugins import blamed
from jigsaw_opt.system.ray_cluster import joined, require_cluster

_LOGGER = logging.getLogger(__name__)


def run(request: Request, method: str | Solver, on_event: Report | None = None) -> Result:
    """Carry out a request by one method, and check the plan."""
    options, solver = request.options, find_solver(method)
    _require(solver, request)
    if options.ray is None:
        return _carried_out(solver, request, on_event)
    require_cluster(options.ray)
    with joined(options.ray):  # which takes some seconds, before the limit begins
        return _carried_out(solver, request, on_event)


def _carried_out(solver: Solver, request: Request, on_event: Report | None) -> Result:
    instance, options = request.instance, request.options
    limit = clock.Clock(options.time_limit, options.cancel, options.grace)
    _LOGGER.info("solving %r with %s", instance.name, solver.name)
    with on_interrupt(options.cancel.set), clock.limited(limit):
        result = _solved(solver, request, on_event or (lambda _: None))
        if result.plan is not None:
            require_correct(instance, result.plan, f"solver {result.solver!r}")
            result = replace(result, objective=result.plan.objective)
        result = certified(instance, result, limit.started, options)
    told = (result.verdict, result.objective, result.bound, result.stopped_by, result.seconds)
    _LOGGER.info("%r is solved: %s, objective %s, bound %s, stopped by %s after %.2f s", instance.name, *told)
    return result


def find_solver(solver: str | Solver) -> Solver:
    """Return the solver of a name, or a solver itself; refuse what is none."""
    if isinstance(solver, str):
        return find(solver)
    require_solver(getattr(solver, "name", str(solver)), solver)
    return solver


def _solved(method: Solver, request: Request, report: Report) -> Result:
    """Return the method's result, without a plan where a certain cause rules out all plans, or time is over at once.

    Whatever is raised once the time is over ends here, also where a solver of others lets it through.
    """
    instance, options = request.instance, request.options

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
        own = type(method).__module__.startswith("jigsaw_opt.")
        return (_run if own else _run_of_others)(method, operations, request, report)
    except OutOfTimeError:
        return none(Status.UNKNOWN, StoppedBy.INTERRUPT if options.cancel.is_set() else StoppedBy.TIME, NO_BOUND)


def _run(method: Solver, operations: Operations, request: Request, report: Report) -> Result:
    part, asked = searched_part(method, operations), (request.openings, request.conditions)
    return SolveState(method.name, operations, request.options, report, part, *asked).carry_out(method)


def _run_of_others(method: Solver, operations: Operations, request: Request, report: Report) -> Result:
    """Run as `_run`; an exception then names the solver, but one of the receiver of events stays as it is."""
    of_report: list[Exception] = []

    def reported(event: Event) -> None:
        try:
            report(event)
        except Exception as error:
            of_report.append(error)
            raise

    try:
        with blamed("solver", method.name, type(method)):
            result = _run(method, operations, request, reported)
    except PluginError as error:
        if error.__cause__ in of_report:
            raise error.__cause__ from None
        raise
    return _of_all_plans(result, searched_part(method, operations), first_bound(operations, request.options))


def _of_all_plans(result: Result, part: str, bound: Bound) -> Result:
    """Return a result without what its method has proven of the plans that it looks at alone."""
    if not part or result.part:  # Results by a `SolveState` state their part, and their bound holds for all.
        return result
    result = replace(result, part=part)
    if result.bound > bound.value:
        result = replace(result, bound=bound.value, proof=bound.proof, bound_proof=None)
    best = result.objective is not None and result.objective <= bound.value
    if best or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return result
    status = Status.UNKNOWN if result.plan is None else Status.FEASIBLE
    return replace(result, status=status, stopped_by=StoppedBy.COMPLETED, conflicts=())


def _require(method: Solver, request: Request) -> None:
    """Refuse a method that is not installed, does not take the instance, or does not use an option that was given."""
    instance, options = request.instance, request.options
    missing = method.unavailable()
    if missing is not None:
        raise MissingEngineError(f"the engine of solver {method.name!r}", missing)
    require_taken(method, instance)
    told, used = f"solver {method.name!r}", method
    if hasattr(method, "choose"):
        used = method.choose(instance)
        told += f", which is {used.name!r} here,"
    engines: tuple[str, ...] = getattr(used, "engines", ())
    if options.engine_parameters or options.engine_log is not None:
        if not engines:
            refused = "engine_parameters" if options.engine_parameters else "engine_log"
            told += " hands no parameters and no log through to an engine"
            raise unsupported(refused, told)
        require_parameters(engines[0], options.engine_parameters)
    require_options(used, options, told)

"""`ilp`: the mixed-integer program of the finite horizon, stated in PuLP and solved by HiGHS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import ceil, inf
from typing import ClassVar, Literal

from jigsaw_opt.errors import MissingEngineError, TooLargeError, UsageError, argument
from jigsaw_opt.formulations.algebra import ProgramTooLargeError
from jigsaw_opt.formulations.ilp_timetable import IlpTimetable, build, fewest_coefficients
from jigsaw_opt.formulations.ilp_timetable.variables import objective_step, time_step
from jigsaw_opt.formulations.timetable.windows import serial_end, serial_limit, windows
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, ceil_div
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.engines.highs import Ending, HighsSearch
from jigsaw_opt.solvers.engines.magnitude import EXACT_FLOATS, progress_sum
from jigsaw_opt.solvers.greedy import offer_greedy
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.registry import refusal
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

_PULP = "pulp>=3.3.2,<4"
MOST_EXPORTED = 5_000_000
"""Coefficients of an exported program by default: half a minute and 2.5 GB of memory to build it."""
_MOST_SEARCHED = 250_000
"""Above so many coefficients the search finds nothing better than the heuristic's plan."""
_SHARE_OF_ROOM = 2**20
"""Deadlines are relaxed by one over this: an engine in floats loses plans that fill their windows exactly."""
_MOST_STEPS = 10**12
"""An exported program has at most so many: a quarter of a step is more than an engine's usual tolerance of 1e-6."""
_RELATIVE_ERROR = 1e-9
"""Error that an engine's bound may have, as a share of the largest objective of interest."""


@dataclass(frozen=True, slots=True)
class Ilp:
    """Mixed-integer programming over the order of operations, for plans better than the heuristic's."""

    name: str = "ilp"
    display_name: str = "exact, mixed-integer programming (HiGHS); finite horizon"
    engines: ClassVar[tuple[str, ...]] = ("highs",)
    lacks: ClassVar[tuple[str, ...]] = ("task_graphs", "power_caps")
    memory_in_time: ClassVar[bool] = True
    # A plan that is refused stays the engine's best, and what it says then is of no use.
    takes: ClassVar[tuple[str, ...]] = tuple(name for name in LIMITS if name != "survivable")

    def unavailable(self) -> str | None:
        """Return which of PuLP and HiGHS is not installed, or None."""
        missing = {"pulp": _PULP, "highspy": "highspy>=1.11,<1.14"}
        return next((package for module, package in missing.items() if find_spec(module) is None), None)

    def unsupported(self, instance: Instance) -> str | None:
        """Return why it does not take a cyclic horizon, or None.

        The order of operations that repeat has no first one, which the program would need.
        """
        return "its horizon is cyclic" if instance.horizon == "cyclic" else None

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance: greedy, and where its plan does not meet the bound, the program."""
        return solve_state.conclude(lambda: _solve(solve_state, solve_state.operations), ("pulp", "highspy"))


ILP = Ilp()


def model_document(
    instance: Instance,
    kind: Literal["mps", "lp"],
    most_coefficients: int = MOST_EXPORTED,
    report: Callable[[int, bool], None] | None = None,
) -> bytes:
    """Return the program of a finite instance as a file; its objective is in microseconds.

    `report`: called with the number of rows and whether these are all: after each, and before the file is made of them.
    """
    operations = _exportable(instance)
    on_row = None if report is None else lambda rows: report(rows, False)
    try:
        program = _whole_model(operations, most_coefficients, on_row).program
    except ProgramTooLargeError as error:
        if str(error):
            raise TooLargeError(f"the program of instance {instance.name!r} has {error}") from None
        raise UsageError(
            f"the program of instance {instance.name!r} has more than {most_coefficients:,} coefficients, and no more "
            f"are written ({argument('most_coefficients')} raises that)",
            code="too-large",
            path="most_coefficients",
        ) from None
    if report is not None:
        report(len(program.rows), True)
    return program.document(kind)


def exported_model(instance: Instance) -> IlpTimetable:
    """Return the model that `model_document` writes: of all plans worth finding, and the same one each time."""
    return _whole_model(_exportable(instance))


def _exportable(instance: Instance) -> Operations:
    """Return an instance, compiled, or raise what `exported_model` raises."""
    if find_spec("pulp") is None:
        raise MissingEngineError("PuLP", _PULP)
    reason = refusal(ILP, instance)
    if reason is not None:
        raise UsageError(f"instance {instance.name!r} has no mixed-integer program: {reason}", code="unsupported")
    operations = compile_instance(instance)
    limit, step = serial_limit(operations), time_step(operations)
    if serial_end(operations) > _MOST_STEPS * step or limit >= EXACT_FLOATS:
        raise UsageError(
            f"instance {operations.instance.name!r} has no mixed-integer program that engines solve exactly: its times "
            f"go up to {serial_end(operations):,} us in steps of {step:,} us, its objective to {limit:,}; at most "
            f"{_MOST_STEPS:,} steps and {EXACT_FLOATS:,} are taken",
            code="too-large",
        )
    return operations


def _whole_model(
    operations: Operations, most_coefficients: float = inf, on_row: Callable[[int], None] | None = None
) -> IlpTimetable:
    """Return the model of all plans worth finding."""
    limit, step = serial_limit(operations), time_step(operations)
    return _model(operations, lower_bound(operations).value, limit, limit, step / 4, most_coefficients, on_row)


def _model(
    operations: Operations,
    bound: int,
    limit: int,
    cutoff: float,
    room: float,
    most_coefficients: float,
    on_row: Callable[[int], None] | None = None,
) -> IlpTimetable:
    """Return the model of plans whose objective is at most `cutoff`; times leave room beyond what `limit` asks for."""
    if progress_sum(operations) > EXACT_IN_64_BITS:
        raise ProgramTooLargeError("sums of progress beyond 64 bits")
    if fewest_coefficients(operations) > most_coefficients:
        raise ProgramTooLargeError
    spans = (
        replace(it, deadline=it.deadline + ceil_div(it.deadline, _SHARE_OF_ROOM)) for it in windows(operations, limit)
    )
    return build(operations, tuple(spans), bound, cutoff, room, most_coefficients, on_row)


class _Grid:
    """Resolution at which the engine can tell objectives apart.

    `limit`: largest objective of interest, in microseconds.
    """

    def __init__(self, operations: Operations, limit: int) -> None:
        self.step = objective_step(operations)
        self.error = max(1e-6 * self.step, _RELATIVE_ERROR * limit)
        self.resolution = max(self.step, ceil(4 * self.error))
        # On weighted sums above, the engine's bound was seen well above the optimum.
        self.certain = limit < EXACT_FLOATS

    def proven(self, bound: float) -> int:
        """Return the objective that a bound computed by the engine proves."""
        return ceil_div(ceil(bound - self.error), self.step) * self.step


def _solve(solve_state: SolveState, operations: Operations) -> StoppedBy | None:
    solve_state.leave_out_model()
    offer_greedy(solve_state, operations, solve_state.options.seed)
    if solve_state.reason() is not None:
        return solve_state.reason()
    try:
        return _search(solve_state, operations)
    except ProgramTooLargeError as error:
        solve_state.leave_out_model(str(error) or f"more than {_MOST_SEARCHED:,} coefficients, and no more are taken")
        return StoppedBy.MODEL_TOO_LARGE


def _search(solve_state: SolveState, operations: Operations) -> StoppedBy:
    options = solve_state.options
    limit = serial_limit(operations) if solve_state.objective is None else solve_state.objective
    grid = _Grid(operations, limit)
    cutoff = limit if solve_state.objective is None else limit - grid.resolution / 2
    # Where the engine cannot tell a step from its error, plans beyond a deadline are refused by `offer`.
    room = max(time_step(operations), 4 * _RELATIVE_ERROR * serial_end(operations)) / 2
    solve_state.leave_out_model("the time ran out while it was being built")
    model = _model(operations, solve_state.bound, limit, cutoff, room, _MOST_SEARCHED)
    solve_state.record_model()

    def raise_bound(bound: float) -> None:
        # It holds for what the engine still searches; what it has cut off is not better by a resolution.
        best = limit if solve_state.objective is None else solve_state.objective
        if grid.certain and bound > solve_state.bound:
            proven = min(grid.proven(min(bound, best)), best - grid.resolution + grid.step)
            solve_state.raise_bound(proven, engine="HiGHS")

    column = model.program.column
    search = HighsSearch(
        model=model.program,
        step=grid.resolution,
        offer=lambda values: solve_state.offer(model.plan(lambda variable: values[column(variable)])),
        raise_bound=raise_bound,
        seconds=solve_state.remaining,
        nodes=None if options.work_limit is None or options.work_limit == inf else int(options.work_limit),
        seed=options.seed,
        threads=options.threads,
        parameters=options.engine_parameters,
        log=solve_state.engine_listener,
    )
    ending = solve_state.run(search.run, search.cancel)
    if ending is Ending.INFEASIBLE and solve_state.objective is None:
        solve_state.refute(partial(minimal_conflict, operations))
    elif ending is Ending.INFEASIBLE:
        raise_bound(cutoff)
    return StoppedBy.TIME if ending is Ending.STOPPED else StoppedBy.COMPLETED

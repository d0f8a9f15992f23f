"""HiGHS, run through its own interface. No other module of the package knows that interface."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jigsaw_opt.errors import Problem
from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.linear import LinearProgram
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.problem.clock import check_deadline, left
from jigsaw_opt.solvers.engines.parameters import Parameter, check_names
from jigsaw_opt.solvers.engines.stoppable import run_stoppable

if TYPE_CHECKING:
    from highspy import HighsLp
    from highspy.highs import HighsCallbackEvent
    from numpy.typing import ArrayLike

    from jigsaw_opt.formulations.linear import Floats

Setting: TypeAlias = Parameter
_SETTINGS: Mapping[str, Setting] = {"output_flag": False, "threads": 1, "random_seed": 0}
_NONE: Mapping[str, Setting] = MappingProxyType({})


class Ending(Enum):
    """Ways in which a search ends."""

    SOLVED = "solved"
    """No solution is better than the best one found by a step or more."""
    INFEASIBLE = "infeasible"
    """The program has no solution."""
    STOPPED = "stopped"
    """A limit, or a cancel."""


class ProgramOutcome(NamedTuple):
    """Outcome of a run of an engine on a program.

    `duals`: by row: what a unit more of the row's side changes the objective by; for programs without integer columns.
    `bound`: lower bound on the objective of every solution.
    """

    ending: Ending
    feasible: bool
    values: Floats
    duals: Floats
    objective: float
    bound: float


def solve_program(program: LinearProgram, settings: Mapping[str, Setting] = _NONE) -> ProgramOutcome:
    """Solve a program from start to end."""
    return HighsEngine(program, settings).run()


_KEPT = (
    "dual_feasibility_tolerance",
    "log_file",
    "mip_abs_gap",
    "mip_feasibility_tolerance",
    "mip_rel_gap",
    "objective_bound",
    "objective_target",
    "presolve_rule_off",
    "primal_feasibility_tolerance",
)
"""Options on which it rests that a solution is right, that one called optimal is it, and what is logged."""


def parameter_problems(parameters: Mapping[str, Setting]) -> Iterator[Problem]:
    """Yield everything that is wrong with options of HiGHS, by its own names."""
    import highspy

    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    known = [name for name in dir(engine.getOptions()) if not name.startswith("_")]
    wrong = {problem.path: problem for problem in check_names("HiGHS", parameters, known, _KEPT)}
    yield from wrong.values()
    # What it says of a wrong value would go to the console.
    engine.setOptionValue("log_to_console", False)
    for name, value in parameters.items():
        if name not in wrong and engine.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            yield Problem(name, f"parameter {name!r} of HiGHS cannot be {value!r}", code="out-of-range")


class HighsEngine:
    """A program in HiGHS. It may grow after a run; the next run starts where the last one ended.

    `settings`: options of HiGHS by their own names. Without any it is silent and deterministic, on one thread.
    """

    def __init__(self, program: LinearProgram, settings: Mapping[str, Setting] = _NONE) -> None:
        import highspy

        self._engine = highspy.Highs()
        self._mixed = bool(program.integer.any())
        self._cancelled = threading.Event()
        for name, value in {**_SETTINGS, **settings}.items():
            self._engine.setOptionValue(name, value)
        self._engine.passModel(_model(program))

    def add_column(self, cost: float, rows: Sequence[int], values: Sequence[float]) -> None:
        """Add a continuous column that is at least 0."""
        self._engine.addCol(cost, 0.0, self._engine.inf, len(rows), rows, values)

    def add_row(self, lower: float, upper: float, columns: Sequence[int], values: ArrayLike) -> None:
        """Add a row."""
        self._engine.addRow(lower, upper, len(columns), columns, values)

    def limit_rows(self, upper: Sequence[float]) -> None:
        """Set the upper side of every row, and remove the lower sides."""
        for row, value in enumerate(upper):
            self._engine.changeRowBounds(row, -self._engine.inf, value)

    def listen(self, offer: Callable[[Sequence[float]], object], raise_bound: Callable[[float], object]) -> None:
        """Subscribe to a search while it runs.

        `offer`: receives the values of the columns in each better solution.
        """

        def interrupt(event: HighsCallbackEvent) -> None:
            if self._cancelled.is_set():
                event.interrupt()

        def progress(event: HighsCallbackEvent) -> None:
            raise_bound(event.data_out.mip_dual_bound)
            interrupt(event)

        self._engine.cbMipImprovingSolution.subscribe(lambda event: offer(event.data_out.mip_solution))
        self._engine.cbMipInterrupt.subscribe(progress)
        self._engine.cbSimplexInterrupt.subscribe(interrupt)

    def log_to(self, log: Callable[[str], None]) -> None:
        """Hand its log on, one line or more at a time."""
        self._engine.cbLogging.subscribe(lambda event: log(event.message))
        # It logs to whom it calls only where it writes a log, too.
        for name, value in {"log_file": os.devnull, "log_to_console": False, "output_flag": True}.items():
            self._engine.setOptionValue(name, value)

    def cancel(self) -> None:
        """Make `run` return soon, of an engine that somebody listens to; from any thread."""
        self._cancelled.set()
        # Its presolve and its cuts check the time far more often than they notice an interrupt.
        self._engine.setOptionValue("time_limit", 0.0)

    def run(self) -> ProgramOutcome:
        """Solve it, within the time that the current solve has left."""
        seconds = left()
        if seconds < math.inf:
            self._engine.setOptionValue("time_limit", self._engine.getRunTime() + seconds)
        if not self._cancelled.is_set():
            # Whoever has no limit, or waits for it elsewhere, needs no thread.
            self._engine.run() if seconds == math.inf else run_stoppable(self._engine.run, self.cancel, "HiGHS")
        check_deadline()
        return self._outcome()

    def write(self, path: Path) -> None:
        """Write the program to a new file, in the format that the file's ending names."""
        self._engine.writeModel(str(path))

    def _outcome(self) -> ProgramOutcome:
        import highspy
        import numpy as np

        status, info, found = self._engine.getModelStatus(), self._engine.getInfo(), self._engine.getSolution()
        endings = {
            highspy.HighsModelStatus.kOptimal: Ending.SOLVED,
            highspy.HighsModelStatus.kInfeasible: Ending.INFEASIBLE,
        }
        ending, objective = endings.get(status, Ending.STOPPED), info.objective_function_value
        bound = info.mip_dual_bound if self._mixed else objective if ending is Ending.SOLVED else -math.inf
        feasible = bool(info.primal_solution_status == highspy.kSolutionStatusFeasible)
        return ProgramOutcome(ending, feasible, np.array(found.col_value), np.array(found.row_dual), objective, bound)


def _model(program: LinearProgram) -> HighsLp:
    import highspy
    import numpy as np

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.row_lower)
    model.col_cost_ = program.costs
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts, rows, values = program.by_column()
    model.a_matrix_.start_ = starts.astype(np.int32)
    model.a_matrix_.index_ = rows.astype(np.int32)
    model.a_matrix_.value_ = values
    if program.integer.any():
        kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
        model.integrality_ = [kinds[whole] for whole in program.integer.tolist()]
    return model


_TOLERANCE = 1e-9
"""Feasibility tolerance of the scaled program; HiGHS allows 1e-10 at least."""
_NO_ENUMERATION = 1 << 16
"""Switches off the presolve rule that enumerates: on larger programs it takes minutes and hears no interrupt."""


@dataclass(eq=False)
class HighsSearch:
    """One search of a mixed-integer program by HiGHS.

    `step`: solutions that are better by less are of no interest. `offer`: receives the value of every column of each
    better solution. `raise_bound`: receives lower bounds on every solution that is better than those offered by `step`,
    in microseconds, as the engine computes them. `seconds, nodes`: limits on the time and on the nodes of the tree, or
    None. `parameters`: of the engine, by its own names. `log`: receives the engine's log, one line or more at a time;
    or None.
    """

    model: AlgebraicModel
    step: float
    offer: Callable[[Sequence[float]], object]
    raise_bound: Callable[[float], None]
    seconds: float | None
    nodes: int | None
    seed: int
    threads: int
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    log: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        # An engine may call its best solution optimal from this absolute gap on.
        self._gap = self.step / 2
        self._scaled = ScaledProgram(self.model.program())
        self._engine = HighsEngine(self._scaled.program, self._settings())
        self._engine.listen(self._offer, self._raise_bound)
        if self.log is not None:
            self._engine.log_to(self.log)

    def cancel(self) -> None:
        """Make `run` return soon; from any thread, any number of times."""
        self._engine.cancel()

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""
        outcome = self._engine.run()
        if outcome.feasible:
            # The engine does not announce a solution that the root's presolve finds.
            self._offer(outcome.values)
        if outcome.ending is Ending.SOLVED:
            self.raise_bound(outcome.objective * self._scaled.objective - self._gap)
        elif outcome.ending is Ending.STOPPED:
            self._raise_bound(outcome.bound)
        return outcome.ending

    def _offer(self, values: Sequence[float] | Floats) -> None:
        self.offer(self._scaled.unscaled(values))

    def _raise_bound(self, bound: float) -> None:
        self.raise_bound(bound * self._scaled.objective)

    def _settings(self) -> dict[str, Setting]:
        settings: dict[str, Setting] = {
            "threads": self.threads,
            "random_seed": self.seed,
            "presolve_rule_off": _NO_ENUMERATION,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": self._gap / self._scaled.objective,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        }
        limits = {"time_limit": self.seconds, "mip_max_nodes": self.nodes}
        settings |= {name: limit for name, limit in limits.items() if limit is not None}
        return settings | dict(self.parameters)

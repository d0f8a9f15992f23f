"""HiGHS, run through its own interface: incumbents, bounds and interrupts come through callbacks."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log2
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.program import Matrix, Row
from jigsaw_opt.problem.clock import left, look, looking
from jigsaw_opt.solvers.engines.outcome import Ending, Task

if TYPE_CHECKING:
    from highspy import Highs, HighsLp
    from highspy.highs import HighsCallbackEvent

__all__ = ["HighsSearch", "run_limited"]

_LARGEST = 10**4
"""Times are scaled to at most this, so that an absolute tolerance is a tiny fraction of any of them."""
_TOLERANCE = 1e-9
"""Feasibility tolerance of the scaled program; HiGHS allows 1e-10 at least."""
_NO_ENUMERATION = 1 << 16
"""Switches off the presolve rule that enumerates: on larger programs it takes minutes and hears no interrupt."""


def run_limited(engine: Highs) -> None:
    """Run an engine on a linear program within the time that the solve at hand has left.

    Raises
    ------
    OutOfTimeError
        The time is over.
    """
    seconds = left()
    if seconds < math.inf:
        engine.setOptionValue("time_limit", engine.getRunTime() + seconds)
    engine.run()
    look()


class HighsSearch:
    """One search by HiGHS.

    Parameters
    ----------
    task
        What to search for.

    Raises
    ------
    OutOfTimeError
        The time of the solve is over before the engine has its model.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._cancelled = threading.Event()
        self._engine: Highs | None = None
        self._scaled = Scaled(task.program.matrix())
        self._model = self._scaled.model()

    def cancel(self) -> None:
        """Make `run` return soon; from any thread."""
        self._cancelled.set()
        if self._engine is not None:
            # Its presolve and its cuts look at the time far more often than they hear an interrupt.
            self._engine.setOptionValue("time_limit", 0.0)

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""
        import highspy

        engine, scaled = highspy.Highs(), self._scaled
        self._configure(engine, scaled)
        engine.passModel(self._model)
        self._subscribe(engine, scaled)
        self._engine = engine
        if self._cancelled.is_set():
            return Ending.STOPPED
        engine.run()
        return self._read(engine, scaled)

    def _read(self, engine: Highs, scaled: Scaled) -> Ending:
        import highspy

        status, info = engine.getModelStatus(), engine.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Ending.INFEASIBLE
        if info.primal_solution_status == highspy.kSolutionStatusFeasible:
            # The callback does not announce a solution that the root's presolve finds.
            self.task.offer(scaled.unscaled(engine.getSolution().col_value))
        if status == highspy.HighsModelStatus.kOptimal:
            self.task.raise_bound(info.objective_function_value * scaled.objective - self.task.gap)
            return Ending.SOLVED
        self.task.raise_bound(info.mip_dual_bound * scaled.objective)
        return Ending.STOPPED

    def _configure(self, engine: Highs, scaled: Scaled) -> None:
        task = self.task
        settings = {
            "output_flag": False,
            "threads": task.threads,
            "random_seed": task.seed,
            "presolve_rule_off": _NO_ENUMERATION,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": task.gap / scaled.objective,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        }
        if task.seconds is not None:
            settings["time_limit"] = task.seconds
        if task.nodes is not None:
            settings["mip_max_nodes"] = task.nodes
        for name, value in settings.items():
            engine.setOptionValue(name, value)

    def _subscribe(self, engine: Highs, scaled: Scaled) -> None:
        def interrupt(event: HighsCallbackEvent) -> None:
            if self._cancelled.is_set():
                event.interrupt()

        def progress(event: HighsCallbackEvent) -> None:
            self.task.raise_bound(event.data_out.mip_dual_bound * scaled.objective)
            interrupt(event)

        def solution(event: HighsCallbackEvent) -> None:
            self.task.offer(scaled.unscaled(event.data_out.mip_solution))

        engine.cbMipImprovingSolution.subscribe(solution)
        engine.cbMipInterrupt.subscribe(progress)
        engine.cbSimplexInterrupt.subscribe(interrupt)


class Scaled:
    """A program whose continuous columns are at most `_LARGEST`, all rows with such columns scaled to them.

    All factors are powers of two, so scaling loses nothing.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.columns = [
            1 if whole else _power_of_two(upper / _LARGEST) for whole, upper in zip(matrix.integer, matrix.upper)
        ]
        self.objective = max(cost * scale for cost, scale in zip(matrix.costs, self.columns, strict=True))

    def unscaled(self, values: Sequence[float]) -> list[float]:
        """Values of the columns of the program as it was."""
        return [value * scale for value, scale in zip(values, self.columns, strict=True)]

    def model(self) -> HighsLp:
        """The scaled program for HiGHS."""
        import highspy

        rows = [self._row(row) for row in looking(self.matrix.rows)]
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.columns), len(rows)
        model.col_cost_ = [c * s / self.objective for c, s in zip(self.matrix.costs, self.columns, strict=True)]
        model.col_lower_ = [v / s for v, s in zip(self.matrix.lower, self.columns, strict=True)]
        model.col_upper_ = [v / s for v, s in zip(self.matrix.upper, self.columns, strict=True)]
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self.matrix.integer]
        model.row_lower_ = [-highspy.kHighsInf if row.low is None else row.low for row in rows]
        model.row_upper_ = [highspy.kHighsInf if row.high is None else row.high for row in rows]
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = list(accumulate((len(row.columns) for row in rows), initial=0))
        model.a_matrix_.index_ = [column for row in rows for column in row.columns]
        model.a_matrix_.value_ = [value for row in rows for value in row.coefficients]
        return model

    def _row(self, row: Row) -> Row:
        scaled = [value * self.columns[column] for column, value in zip(row.columns, row.coefficients, strict=True)]
        times = [abs(v) for c, v in zip(row.columns, scaled, strict=True) if not self.matrix.integer[c]]
        factor = _power_of_two(max(times)) if times else 1
        low, high = (None if side is None else side / factor for side in (row.low, row.high))
        return Row(row.columns, tuple(value / factor for value in scaled), low, high)


def _power_of_two(value: float) -> int:
    """Least power of two that is at least `value` and at least 1."""
    return 1 << max(0, ceil(log2(value))) if value > 1 else 1

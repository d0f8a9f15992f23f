"""A search by HiGHS for ever better solutions of a mixed-integer program over times in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.linear import LinearProgram
from jigsaw_opt.solvers.engines.highs import HighsEngine, Setting
from jigsaw_opt.solvers.engines.mip import Ending, MipTask

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

__all__ = ["HighsSearch", "ScaledProgram"]

_LARGEST = 10**4
"""Times are scaled to at most this, so that an absolute tolerance is a tiny fraction of any of them."""
_TOLERANCE = 1e-9
"""Feasibility tolerance of the scaled program; HiGHS allows 1e-10 at least."""
_NO_ENUMERATION = 1 << 16
"""Switches off the presolve rule that enumerates: on larger programs it takes minutes and hears no interrupt."""


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

    def __init__(self, task: MipTask) -> None:
        self.task = task
        self._scaled = ScaledProgram(task.model.program())
        self._engine = HighsEngine(self._scaled.program, self._settings())
        self._engine.listen(self._offer, self._raise_bound)
        if task.log is not None:
            self._engine.log_to(task.log)

    def cancel(self) -> None:
        """Make `run` return soon; from any thread."""
        self._engine.cancel()

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""
        outcome = self._engine.run()
        if outcome.feasible:
            # The engine does not announce a solution that the root's presolve finds.
            self._offer(outcome.values)
        if outcome.ending is Ending.SOLVED:
            self.task.raise_bound(outcome.objective * self._scaled.objective - self.task.gap)
        elif outcome.ending is Ending.STOPPED:
            self._raise_bound(outcome.bound)
        return outcome.ending

    def _offer(self, values: Sequence[float] | Floats) -> None:
        self.task.offer(self._scaled.unscaled(values))

    def _raise_bound(self, bound: float) -> None:
        self.task.raise_bound(bound * self._scaled.objective)

    def _settings(self) -> dict[str, Setting]:
        task = self.task
        settings: dict[str, Setting] = {
            "threads": task.threads,
            "random_seed": task.seed,
            "presolve_rule_off": _NO_ENUMERATION,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": task.gap / self._scaled.objective,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        }
        limits = {"time_limit": task.seconds, "mip_max_nodes": task.nodes}
        settings |= {name: limit for name, limit in limits.items() if limit is not None}
        return settings | dict(task.parameters)


class ScaledProgram:
    """A program whose continuous columns are at most `_LARGEST`, all rows with such columns scaled to them.

    All factors are powers of two, so scaling loses nothing.

    Parameters
    ----------
    original
        The program; its continuous columns have upper bounds.

    Attributes
    ----------
    program
        The scaled program.
    objective
        What its objective is to be multiplied with.
    """

    def __init__(self, original: LinearProgram) -> None:
        import numpy as np

        self._factors = np.where(original.integer, 1.0, _powers_of_two(original.upper / _LARGEST))
        self.objective = float((original.costs * self._factors).max())
        values = original.values * self._factors[original.columns]
        largest = np.zeros(len(original.row_lower))
        np.maximum.at(largest, original.rows, np.where(original.integer[original.columns], 0.0, np.abs(values)))
        of_row = _powers_of_two(largest)
        self.program = replace(
            original,
            costs=original.costs * self._factors / self.objective,
            lower=original.lower / self._factors,
            upper=original.upper / self._factors,
            row_lower=original.row_lower / of_row,
            row_upper=original.row_upper / of_row,
            values=values / of_row[original.rows],
        )

    def unscaled(self, values: Sequence[float] | Floats) -> list[float]:
        """Values of the columns of the program as it was."""
        import numpy as np

        unscaled: list[float] = (np.asarray(values) * self._factors).tolist()
        return unscaled


def _powers_of_two(values: Floats) -> Floats:
    """Least power of two that is at least each value and at least 1."""
    import numpy as np

    powers: Floats = np.exp2(np.ceil(np.log2(np.maximum(values, 1.0))))
    return powers

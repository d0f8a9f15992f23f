"""A search by HiGHS for ever better solutions of a mixed-integer program over times in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.solvers.engines.highs import HighsEngine, Setting
from jigsaw_opt.solvers.engines.mip import Ending, MipTask

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

__all__ = ["HighsSearch"]

_TOLERANCE = 1e-9
"""Feasibility tolerance of the scaled program; HiGHS allows 1e-10 at least."""
_NO_ENUMERATION = 1 << 16
"""Switches off the presolve rule that enumerates: on larger programs it takes minutes and hears no interrupt."""


class HighsSearch:
    """One search by HiGHS.

    `task`: the program, and who receives solutions and bounds.
    """

    def __init__(self, task: MipTask) -> None:
        self.task = task
        self._scaled = ScaledProgram(task.model.program())
        self._engine = HighsEngine(self._scaled.program, self._settings())
        self._engine.listen(self._offer, self._raise_bound)
        if task.log is not None:
            self._engine.log_to(task.log)

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

"""`auto`: the solver that fits what is installed; `portfolio` fits itself to the size of the instance."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.cpsat import CPSAT
from jigsaw_opt.solvers.greedy.solver import GREEDY, offer_greedy
from jigsaw_opt.solvers.portfolio.portfolio import PORTFOLIO
from jigsaw_opt.solvers.registry import ControlledSolver, refusal
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve_state import SolveState

_SHORT = 1.0
"""Seconds of the clock below which greedy comes first, so that no plan is worse: engines take a part to load."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Chooses `portfolio`, or the next method that takes the instance and whose engine is installed."""

    name: str = "auto"
    display_name: str = "portfolio, or greedy where OR-Tools is not installed"

    task_graphs: ClassVar[bool] = True
    guarantees: ClassVar[bool] = True
    route_policies: ClassVar[bool] = True
    power_caps: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        """Return None: greedy needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Return None: it takes jobs of both kinds, on both horizons."""
        return None

    def run(self, solve_state: SolveState) -> Result:
        """Solve with the chosen solver; the result names it."""
        chosen = self.choose(solve_state.operations.instance)
        solve_state.name = chosen.name
        if chosen is not GREEDY and solve_state.remaining is not None and solve_state.remaining < _SHORT:
            with suppress(OutOfTimeError):
                offer_greedy(solve_state, solve_state.operations, solve_state.options.seed)
        return chosen.run(solve_state)

    def choose(self, instance: Instance) -> ControlledSolver:
        """Return the solver for this installation and an instance."""
        installed = [method for method in (PORTFOLIO, CPSAT) if method.unavailable() is None]
        return next((method for method in installed if refusal(method, instance) is None), GREEDY)


AUTO = Auto()
"""The solver registered as ``auto``."""

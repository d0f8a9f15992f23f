"""`auto`: the solver that fits what is installed; `portfolio` fits itself to the size of the instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.solver import GREEDY
from jigsaw_opt.solvers.portfolio import PORTFOLIO
from jigsaw_opt.solvers.registry import ControlledSolver
from jigsaw_opt.solvers.result import Result

__all__ = ["AUTO", "Auto"]


@dataclass(frozen=True, slots=True)
class Auto:
    """Chooses `portfolio`, or `greedy` where the engine of `portfolio` is missing."""

    name: str = "auto"
    display_name: str = "portfolio, or greedy where OR-Tools is not installed"

    shapes: ClassVar[bool] = True
    promises: ClassVar[bool] = True
    route_policies: ClassVar[bool] = True

    @property
    def engines(self) -> tuple[str, ...]:
        """Those of the chosen solver."""
        engines: tuple[str, ...] = getattr(self.choose(), "engines", ())
        return engines

    @property
    def takes(self) -> tuple[str, ...]:
        """Those that the chosen solver takes."""
        takes: tuple[str, ...] = getattr(self.choose(), "takes", ())
        return takes

    def unavailable(self) -> str | None:
        """Never: greedy needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Never: it takes jobs of both kinds, on both horizons."""
        return None

    def run(self, control: Control) -> Result:
        """Solve with the chosen solver; the result names it."""
        chosen = self.choose()
        control.name = chosen.name
        return chosen.run(control)

    def choose(self) -> ControlledSolver:
        """The solver for this installation."""
        return PORTFOLIO if PORTFOLIO.unavailable() is None else GREEDY


AUTO = Auto()
"""The solver registered as ``auto``."""

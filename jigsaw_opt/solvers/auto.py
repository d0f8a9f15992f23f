"""`auto`: the solver that fits what is installed; `portfolio` fits itself to the size of the instance."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import Solver, find
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["AUTO", "Auto"]


@dataclass(frozen=True, slots=True)
class Auto:
    """Chooses `portfolio`, or `greedy` where the engine of `portfolio` is missing."""

    name: str = "auto"
    display_name: str = "portfolio, or greedy where OR-Tools is not installed"

    def unavailable(self) -> str | None:
        """Never: greedy needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Never: it takes every instance."""
        return None

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve with the chosen solver; the result names it."""
        return self.choose()(instance, options, report)

    def choose(self) -> Solver:
        """The solver for this installation."""
        everything = find("portfolio")
        return everything if everything.unavailable() is None else find("greedy")


AUTO = Auto()
"""The solver registered as ``auto``."""

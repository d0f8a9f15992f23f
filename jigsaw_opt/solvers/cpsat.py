"""`cpsat`: the exact models on CP-SAT, one for each horizon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.engines.cpsat import OrtoolsSolver
from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result

__all__ = ["CPSAT", "Cpsat"]


@dataclass(frozen=True, slots=True)
class Cpsat(OrtoolsSolver):
    """Constraint programming over intervals, started from the heuristic's plan."""

    name: str = "cpsat"
    display_name: str = "exact, constraint programming (OR-Tools CP-SAT); finite and cyclic horizon"

    shapes: ClassVar[bool] = True
    promises: ClassVar[bool] = True
    route_policies: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = LIMITS

    def run(self, control: Control) -> Result:
        """Solve the instance with the model of its horizon."""
        from jigsaw_opt.solvers.cpsat_search import solve_exactly

        return control.conclude(lambda: solve_exactly(control, control.operations), engines=["ortools"])


CPSAT = Cpsat()

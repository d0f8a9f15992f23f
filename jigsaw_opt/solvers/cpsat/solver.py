"""`cpsat`: the exact models on CP-SAT, one for each horizon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.solvers.options import LIMITS
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import OrtoolsSolver


@dataclass(frozen=True, slots=True)
class Cpsat(OrtoolsSolver):
    """Constraint programming over intervals, started from the heuristic's plan."""

    name: str = "cpsat"
    display_name: str = "exact, constraint programming (OR-Tools CP-SAT); finite and cyclic horizon"

    takes: ClassVar[tuple[str, ...]] = LIMITS

    def run(self, solve_state: SolveState) -> Result:
        """Solve the instance with the model of its horizon."""
        from jigsaw_opt.solvers.cpsat.search import solve_exactly

        return solve_state.conclude(lambda: solve_exactly(solve_state, solve_state.operations), engines=["ortools"])


CPSAT = Cpsat()

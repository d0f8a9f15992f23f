"""`cpsat`: the exact models on CP-SAT, one for each horizon."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.engines.cpsat import OrtoolsSolver
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["CPSAT", "Cpsat"]


@dataclass(frozen=True, slots=True)
class Cpsat(OrtoolsSolver):
    """Constraint programming over intervals, started from the heuristic's plan."""

    name: str = "cpsat"
    display_name: str = "exact, constraint programming (OR-Tools CP-SAT); finite and cyclic horizon"

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve the instance with the model of its horizon."""
        pieces = cut(instance)
        control = Control(self.name, pieces, options, report)
        from jigsaw_opt.solvers.cpsat_search import solve_exactly

        return control.conclude(lambda: solve_exactly(control, pieces), engines=["ortools"])


CPSAT = Cpsat()

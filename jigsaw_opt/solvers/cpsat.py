"""`cpsat`: the exact models on CP-SAT, one for each horizon."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["CPSAT", "Cpsat"]


@dataclass(frozen=True, slots=True)
class Cpsat:
    """Constraint programming over intervals, started from the heuristic's plan."""

    name: str = "cpsat"
    display_name: str = "exact, constraint programming (OR-Tools CP-SAT); finite and cyclic horizon"

    def unavailable(self) -> str | None:
        """OR-Tools, where it is not installed."""
        return None if find_spec("ortools") else "ortools>=9.15,<10"

    def unsupported(self, instance: Instance) -> str | None:
        """Never: there is a model for each horizon, and for each objective."""
        return None

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve the instance with the model of its horizon."""
        pieces = cut(instance)
        control = Control(self.name, pieces, options, report)
        from jigsaw_opt.solvers.cpsat_search import solve_exactly

        return solve_exactly(control, pieces)


CPSAT = Cpsat()

"""CP-SAT, set so that its proofs hold."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from jigsaw_opt.problem.instance import Instance

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["OrtoolsSolver", "new_solver"]


def new_solver(workers: int = 1, seed: int = 0) -> cp_model.CpSolver:
    """An engine with the settings that every use of it shares; `workers` and `seed` as in `Options`."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Ctrl-C is the caller's.
    solver.parameters.catch_sigint_signal = False
    # The presolve of sums over literals of which one holds loses solutions in OR-Tools 9.15 (google/or-tools#5293);
    # this limit is what switches it off.
    solver.parameters.presolve_inclusion_work_limit = 0
    # Two objectives beyond the exact floats look alike to its rule for the gap, and it would call the first optimal.
    solver.parameters.absolute_gap_limit = 0.0
    return solver


class OrtoolsSolver:
    """What all solvers on CP-SAT say of themselves."""

    __slots__ = ()

    def unavailable(self) -> str | None:
        """The pip argument of OR-Tools where it is missing."""
        return None if find_spec("ortools") else "ortools>=9.15,<10"

    def unsupported(self, instance: Instance) -> str | None:
        """Never: they take both horizons and every objective."""
        return None

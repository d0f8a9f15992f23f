"""Placement, levels and loads of all jobs together, decided by CP-SAT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.solvers.bounds.packing.destructive import destructive
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.engines.stoppable import run_stoppable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_ATTEMPTS = ((0, 0.5), (1, 3.5))
"""Deterministic seconds that one objective is worth, without a linear relaxation, which decides most, and with it."""


class PlacementTest:
    """Test whether all workers find a place where no load of a GPU, link or job exceeds the objective."""

    def __init__(self, context: BoundContext) -> None:
        self._operations = context.operations
        self._places = [places for places in server_partitions(self._operations.cluster) if not places.shared]

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open."""
        from ortools.sat.python import cp_model

        always = self._operations.horizon == "cyclic"  # On the finite horizon jobs may follow one another.
        model = cpsat_loads.build(self._operations, limit, self._places, all_present=always)
        status = cp_model.UNKNOWN
        for linearization, work in _ATTEMPTS:
            if status == cp_model.UNKNOWN and not budget.spent:
                status = _status(model, linearization, work, budget)
        return self._proof(limit) if status == cp_model.INFEASIBLE else None

    def _proof(self, limit: int) -> Proof:
        operations, terms = self._operations, (Term("objective that no placement stays within", limit),)
        jobs, cluster = tuple(job.name for job in operations.jobs), operations.cluster
        servers, links = tuple(each.name for each in cluster.servers), tuple(each.name for each in cluster.links)
        return Proof("work, transfers and memory of every placement", "", terms, jobs, servers, links)


def _status(model: cp_model.CpModel, linearization: int, work: float, budget: BoundBudget) -> cp_model.CpSolverStatus:
    """Return the status that CP-SAT reaches for a model within some work."""
    from ortools.sat.python import cp_model

    solver = new_solver()
    solver.parameters.linearization_level = linearization
    solver.parameters.max_deterministic_time = min(work, budget.left)
    try:
        status = run_stoppable(lambda: solver.solve(model), solver.stop_search, "bound", lambda: budget.stopped)
    except OutOfTimeError:  # that of the bounds, which may be less than that of the solve
        return cp_model.UNKNOWN
    budget.charge(solver.response_proto.deterministic_time)
    return status


PLACEMENT_LOADS = Relaxation(
    "placement_loads",
    destructive(lambda context: [PlacementTest(context)]),
    frozenset({"makespan", "period"}),
    fits=cpsat_loads.fits,
)
"""The relaxation registered as ``placement_loads``."""

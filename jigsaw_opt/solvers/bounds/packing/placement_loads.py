"""Placement, levels and loads of all jobs together, whose largest load CP-SAT makes as small as it can."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.solvers.bounds.packing.destructive import destructive_bounds
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.engines.stoppable import run_stoppable

_LEAST_WORK, _ATTEMPT_WORK = 1.0, 3.5
"""Deterministic seconds for the least objective, whose bound rises fast and then hardly any more, and for one objective
that is refuted from there on: where the limit is a number, the engine infers more from it."""


class PlacementTest:
    """Test whether all workers find a place where no load of a GPU, link or job exceeds the objective."""

    def __init__(self, context: BoundContext) -> None:
        self._operations = context.operations
        self._places = [places for places in server_partitions(self._operations.cluster) if not places.shared]

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open."""
        # No plan is within the limit where the least one, as far as it is proven, is more.
        return self.proof(limit) if self.least(limit, limit, 1, _ATTEMPT_WORK, budget) > limit else None

    def least(self, known: int, most: int, linearization: int, work: float, budget: BoundBudget) -> int:
        """Return a bound on all objectives, and one more than `most` where that is not an objective of a plan.

        `known`: a bound that is known. `linearization, work`: level of linear relaxation, and deterministic seconds.
        """
        from ortools.sat.python import cp_model

        always = self._operations.horizon == "cyclic"  # On the finite horizon jobs may follow one another.
        loads = cpsat_loads.build(self._operations, known, most, self._places, all_present=always)
        solver = new_solver()
        solver.parameters.linearization_level = linearization
        solver.parameters.max_deterministic_time = min(work, budget.left)
        try:
            status = run_stoppable(
                lambda: solver.solve(loads.model), solver.stop_search, "bound", lambda: budget.stopped
            )
        except OutOfTimeError:  # that of the bounds, which may be less than that of the solve
            return known
        budget.charge(solver.response_proto.deterministic_time)
        if status == cp_model.INFEASIBLE:
            return most + 1
        return max(known, loads.limit.least(solver.best_objective_bound)) if known < most else known

    def proof(self, limit: int) -> Proof:
        """Return the proof that no plan has an objective of at most `limit`."""
        operations, terms = self._operations, (Term("objective that no placement stays within", limit),)
        jobs, cluster = tuple(job.name for job in operations.jobs), operations.cluster
        servers, links = tuple(each.name for each in cluster.servers), tuple(each.name for each in cluster.links)
        return Proof("work, transfers and memory of every placement", "", terms, jobs, servers, links)


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield bounds from the least objective within which workers find places, and then from those refuted."""
    # From here on, an objective that some plan reaches if there is any, nothing is proven.
    most = serial_limit(context.operations)
    if budget.spent or known >= most:
        return
    test = PlacementTest(context)
    least = min(most, test.least(known, most, 2, _LEAST_WORK, budget))
    if least > known:
        yield Bound(least, test.proof(least - 1))
    yield from destructive_bounds(test, least, most, budget)


PLACEMENT_LOADS = Relaxation(
    "placement_loads", _bounds, frozenset({"makespan", "period"}), fits=cpsat_loads.fits, engine="CP-SAT"
)
"""The relaxation registered as ``placement_loads``."""

"""Placement, levels and loads of all jobs together, decided by CP-SAT."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.links import groupings
from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.engines.cpsat import new_solver

__all__ = ["LoadedPlacement", "placement_questions"]

_MOST_VARIABLES = 20_000
"""In a larger model the engine decides nothing in time."""
_MOST_WORK = 4.0
"""Deterministic seconds that one objective is worth."""
_LARGEST_SUM = 2**62
"""The engine's integers have 63 bits."""
_POLL_SECONDS = 0.02


def placement_questions(pieces: Pieces) -> Iterator[LoadedPlacement]:
    """The question where the model is small enough, else none."""
    states = sum(job.state_bytes + max(job.activation_bytes) for job in pieces.jobs)
    if cpsat_loads.variable_count(pieces) <= _MOST_VARIABLES and states < _LARGEST_SUM:
        yield LoadedPlacement(pieces)


class LoadedPlacement:
    """Whether all workers find a place where no GPU, link or job has more to do than the objective leaves time for.

    Parameters
    ----------
    pieces
        The instance, cut.
    """

    reason = "work, transfers and memory of every placement"

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._places = [places for places in groupings(pieces.cluster) if not places.shared]

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether no plan has an objective of at most `limit`."""
        from ortools.sat.python import cp_model

        model = cpsat_loads.build(self._pieces, limit, self._places)
        solver = new_solver()
        solver.parameters.max_deterministic_time = min(_MOST_WORK, budget.left)
        with ThreadPoolExecutor(1, thread_name_prefix="jigsaw-bound") as pool:
            future = pool.submit(solver.solve, model)
            try:
                while not wait([future], _POLL_SECONDS).done:
                    if budget.stopped:
                        solver.stop_search()
            finally:
                if not future.done():
                    solver.stop_search()
        budget.pay(solver.response_proto.deterministic_time)
        return future.result() == cp_model.INFEASIBLE

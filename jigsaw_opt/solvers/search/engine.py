"""CP-SAT on the small models of the search, within its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from jigsaw_opt.solvers.engines.cpsat import configure, new_solver
from jigsaw_opt.solvers.search.budget import Budget

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Value = Callable[[cp_model.IntVar], int]

_FEASIBLE = {
    "linearization_level": 0,
    "search_random_variable_pool_size": 10,
    "use_precedences_in_disjunctive_constraint": False,
}
"""Parameters for models of which any solution will do, by measurement: no relaxation, chance in what comes next."""


_PRICE = 3.0
"""Deterministic seconds of a search that one of the engine's counts as: the engine takes about so much more time for
it."""
_SECONDS = 20.0
"""Seconds of the clock for a deterministic second of the engine, at most, where only a clock limits the solve: a small
model is mostly in presolve, whose work the engine counts for little."""


class Engine:
    """One engine for all parts of a search."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.solve_state = budget, budget.solve_state
        self._calls = 0

    def solve_all(self, models: Sequence[cp_model.CpModel], work: float) -> list[Value | None]:
        """Solve small models, of which any solution will do, in parallel, each on one thread.

        `work` is the limit for each.
        """
        from ortools.sat.python import cp_model

        if not models:
            return []
        solvers = [self._solver(work) for _ in models]

        def cancel() -> None:
            for solver in solvers:
                solver.stop_search()

        calls = [partial(solver.solve, model) for solver, model in zip(solvers, models, strict=True)]
        statuses = self.solve_state.run_all(calls, cancel, self.solve_state.options.threads)
        deterministic = sum(solver.response_proto.deterministic_time for solver in solvers)
        self.budget.spend(_PRICE * deterministic)
        found = (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return [s.value if status in found else None for s, status in zip(solvers, statuses, strict=True)]

    def _solver(self, work: float) -> cp_model.CpSolver:
        self._calls += 1
        solver = new_solver(seed=(self.solve_state.options.seed + self._calls) % 2**31)
        solver.parameters.max_deterministic_time = work
        for name, value in _FEASIBLE.items():
            setattr(solver.parameters, name, value)
        remaining = self.solve_state.remaining
        if self.solve_state.options.clocked and remaining is not None:
            # The engine does not count all of its work, so a clock has to end it.
            remaining = min(remaining, _SECONDS * work)
        if remaining is not None:
            solver.parameters.max_time_in_seconds = remaining
        configure(solver, self.solve_state.options.engine_parameters, self.solve_state.engine_listener)
        return solver

"""Closing in on the optimum from both sides: the exact model is asked for a plan within one target after the other.

A target is decided far sooner than the best objective is found and proven. One that no plan is within is a bound: then
none is within a smaller one either (``docs/models.md`` has the lemma for periods).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat import spans_suffice
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.cpsat.model import build_model, engine_for, run_engine
from jigsaw_opt.solvers.engines.cpsat import SECONDS_OF_EFFORT
from jigsaw_opt.solvers.solve_state import SolveState

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_LEAST_EFFORT, _MOST_EFFORT, _EFFORTS = {"finite": 0.15, "cyclic": 0.3}, 6.0, 2.0
"""Deterministic seconds for a target: at first, at most, and by what factor more after each that is left open."""


class Targets:
    """Targets between the bound and the incumbent of a solve, put to the exact model.

    `solve_state`: receives plans and bounds; it may receive them from elsewhere at the same time. `operations`: the
    compiled instance; its exact model can be built.
    """

    def __init__(self, solve_state: SolveState, operations: Operations, workers: int) -> None:
        self._control, self._operations, self._workers = solve_state, operations, workers
        # How often the room between bound and best plan is halved for a target. The first plans are further from the
        # best one where every end counts.
        self._halvings = 2 if operations.objective == "weighted_completion" else 1
        self._effort = _LEAST_EFFORT[operations.horizon]
        self._strongly, self._other_way = True, False
        self._bound_first = operations.horizon == "cyclic" and bool(operations.task_graphs)
        self._work, self._most_work, self._end = 0.0, math.inf, math.inf

    def bisect(self, work: float = math.inf, seconds: float = math.inf, patience: int | None = None) -> float:
        """Ask for targets: further from the bound after each that is impossible, nearer and longer after one left open.

        On the finite horizon a target left open is asked for once more the other way, with strong propagation of orders
        or without. One finds in seconds what the other does not find in minutes; which one differs from instance to
        instance. On the cyclic horizon, and of task graphs, hardly anything is refuted without it.

        Deterministic seconds spent in all calls.

        `work`: limit in the engine's deterministic seconds, for all calls together. `patience`: so many targets may be
        left open, on the finite horizon both ways; None for as many as the largest effort allows. The next call goes on
        from there.
        """
        solve_state, left_open = self._control, 0
        self._most_work, self._end = work, solve_state.seconds + seconds
        if self._bound_first and not self._over():
            # Periods of task graphs often meet their bound. Such a plan is found without a relaxation at once, or not.
            self._bound_first = False
            self._answer(solve_state.bound, relaxed=False)
        while self._effort <= _MOST_EFFORT and left_open != patience and not self._over():
            assert solve_state.objective is not None, "without a plan it is over"
            bound, most = solve_state.bound, solve_state.objective - 1
            answer = self._answer(bound + (max(0, most - bound) >> self._halvings))
            if answer is None:
                if self._operations.horizon == "finite" and not self._operations.task_graphs:
                    self._strongly, self._other_way = not self._strongly, not self._other_way
                if not self._other_way:
                    left_open += 1
                    self._halvings, self._effort = self._halvings + 1, self._effort * _EFFORTS
                continue
            self._other_way = False
            # Where a plan just below the best one was found, that is not the optimum, and no target to begin with.
            self._halvings = max(1, self._halvings) if answer else max(0, self._halvings - 1)
        return self._work

    def _over(self) -> bool:
        solve_state = self._control
        spent = self._work >= self._most_work or solve_state.seconds >= self._end
        return spent or solve_state.objective is None or solve_state.reason() is not None

    def _answer(self, target: int, relaxed: bool = True) -> bool | None:
        """Return whether there is a plan within a target; None where the engine does not find out."""
        from ortools.sat.python import cp_model

        solve_state = self._control
        # A plan of a shorter period can be stretched to this one, and a constant period is decided far sooner.
        least = target if self._operations.horizon == "cyclic" else min(solve_state.bound, target)
        model = build_model(solve_state, self._operations, least, target)
        model.proto.clear_objective()  # type: ignore[no-untyped-call]
        solver = self._engine()
        if not relaxed:
            solver.parameters.linearization_level = 0
        status = run_engine(solve_state, solver, model)
        self._work += solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            solve_state.raise_bound(target + 1, engine="CP-SAT")
            return False
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        solve_state.offer(model.plan(solver.value))
        # Under a condition the plan may have been refused, which leaves open whether there is another one.
        return True if solve_state.objective is not None and solve_state.objective <= target else None

    def _engine(self) -> cp_model.CpSolver:
        solve_state = self._control
        solver = engine_for(
            solve_state, self._operations, self._workers, min(self._effort, self._most_work - self._work)
        )
        left = max(0.0, self._end - solve_state.seconds)
        if solve_state.options.work_limit is None:
            left = min(left, SECONDS_OF_EFFORT * self._effort)
        solver.parameters.max_time_in_seconds = min(left, solver.parameters.max_time_in_seconds)
        # Probing takes longer than most targets.
        solver.parameters.cp_model_probing_level = 0
        # CP-SAT then fixes what the orders of neighbours on a GPU or link leave open, which pays where operations are
        # few. ``use_dynamic_precedence_in_disjunctive`` finds more, and ends the process in OR-Tools 9.15.
        solver.parameters.use_strong_propagation_in_disjunctive = self._strongly
        # Too much work for a GPU or link is for other bounds to find. Orders that leave no room are found without a
        # relaxation, several times sooner; several threads have both. Where periods of task graphs overlap, only the
        # relaxation finds what holds memory for too long.
        cyclic = self._operations.horizon == "cyclic" and bool(self._operations.task_graphs)
        if self._workers == 1 and (not cyclic or spans_suffice(self._operations)):
            solver.parameters.linearization_level = 0
        return solver

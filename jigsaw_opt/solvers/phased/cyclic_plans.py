"""Cyclic plans of jobs that stay on their GPUs: insertion at longer and longer periods, then annealed orders."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.assignments.assignment import Assignment
from jigsaw_opt.solvers.assignments.layout import Layout, demands
from jigsaw_opt.solvers.phased.activity_timing import activities_timed
from jigsaw_opt.solvers.phased.assigning import assigned
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import FixedPolicy
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import ModuloInsertion
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.sequence_search import SequenceSearch
from jigsaw_opt.solvers.search.state.partial_placement import fullest_us
from jigsaw_opt.solvers.solve_state import SolveState

__all__ = ["FixedPlacementTiming"]

_FRUITLESS, _WORTH = 2, 0.002
"""Rounds of insertion after which timing ends, each without a period that is shorter by more than this share."""
_STRETCH = 1.5
"""Factor from one period of insertion to the next; the first is by so much longer than the load of the fullest."""
_VISITS, _STEPS_AN_OPERATION, _MOST_STEPS = 1_000_000, 20, 4_000
"""Limits of one annealing of an order."""
_TEMPERATURE = 0.05
"""Share of the period that its first steps may lose."""


@dataclass(frozen=True, slots=True)
class FixedPlacementTiming:
    """Times a cyclic instance whose jobs have their GPUs already.

    `placements`: by name of a job, the names of its workers' GPUs. `known`: A plan of the same jobs there, or None.
    """

    placements: Mapping[str, Sequence[str]]
    known: Timetable | None = None
    name: str = "timing"
    display_name: str = "cyclic timetables of a given placement"

    task_graphs: ClassVar[bool] = True
    guarantees: ClassVar[bool] = True
    route_policies: ClassVar[bool] = True
    power_caps: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        """Return None: it needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Return why it does not take an instance, or None."""
        return None if instance.horizon == "cyclic" else "it is not cyclic"

    def run(self, solve_state: SolveState) -> Result:
        """Offer plans with shorter and shorter periods."""
        operations = solve_state.operations
        # Modulo insertion knows no power caps, and no task graphs.
        in_lists = operations.task_graphs or operations.cluster.power_caps
        timed = activities_timed if in_lists else _timed
        return solve_state.conclude(lambda: timed(solve_state, self.placements, self.known))


def _timed(solve_state: SolveState, placements: Mapping[str, Sequence[str]], known: Timetable | None) -> StoppedBy:
    operations, rng = solve_state.operations, random.Random(solve_state.options.seed)
    asked = demands(operations)
    if asked is None:
        return StoppedBy.COMPLETED
    data = ProblemData(operations, Layout(operations), asked)
    assignments = assigned(data, placements)
    if assignments is None:
        return StoppedBy.COMPLETED
    best = None if known is None else _offered(solve_state, known)
    orders: SequenceSearch | None = None
    fruitless = 0
    while fruitless < _FRUITLESS and solve_state.reason() is None:
        # One after another, all iterations fit into half of this period: a longer one would add idle time only.
        most = 2 * sum(assignment.iteration_us * assignment.job.iterations for assignment in assignments)
        before = most if solve_state.objective is None else solve_state.objective
        if best is None:
            found = _inserted(data, assignments, most, rng, lambda: solve_state.reason() is not None)
            best = None if found is None else _offered(solve_state, found)
        if best is not None and solve_state.reason() is None:
            orders = orders or SequenceSearch(data, rng)
            best = _offered(solve_state, _annealed(orders, best, solve_state))
        gained = before - (before if solve_state.objective is None else solve_state.objective)
        fruitless = 0 if gained > before * _WORTH else fruitless + 1
    return solve_state.reason() or StoppedBy.COMPLETED


def _inserted(
    data: ProblemData, assignments: Sequence[Assignment], most: int, rng: random.Random, stop: Callable[[], bool]
) -> Timetable | None:
    """Return the jobs at the shortest of some periods at which all find room; `most` is the longest of them."""
    weights = [sum(map(sum, assignment.exchange)) for assignment in assignments]
    # No period is shorter than the load of the fullest GPU or link, and hardly any plan reaches it: the first try is
    # already longer by the factor.
    period = fullest_us(assignments)
    while period < most:
        # Without the 1, a period of one microsecond would stay as it is for ever.
        period = min(most, int(_STRETCH * period) + 1)
        insertion = ModuloInsertion(data, FixedPolicy(assignments), period, rng)
        found = insertion.insert_all(range(len(assignments)), weights, 0, stop)
        if found is not None or stop():
            return found
    return None


def _offered(solve_state: SolveState, timetable: Timetable) -> Timetable:
    solve_state.offer(timetable)
    return timetable


def _annealed(orders: SequenceSearch, timetable: Timetable, solve_state: SolveState) -> Timetable:
    """Return the timetable with its operations in a better order, if annealing finds one."""
    given = orders.given(timetable)
    steps = max(1, min(_MOST_STEPS, _VISITS // orders.size, _STEPS_AN_OPERATION * orders.size))
    found = orders.anneal(given, given.assignments, steps, _TEMPERATURE, lambda _: solve_state.reason() is not None)
    return orders.timetable(found) if found.value < given.value else timetable

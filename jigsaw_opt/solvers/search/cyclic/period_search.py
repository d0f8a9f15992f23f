"""Plans of shorter periods, of jobs that are inserted group by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable
from jigsaw_opt.solvers.search.cyclic.group_insertion import DecomposedInsertion, NoGood
from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment


class Hierarchies:
    """The hierarchical assignment that is in use, and when to replace it.

    `make`: A new assignment, from its target and the longest that a job may take. `stop`: asked now and then; once it
    holds, nothing fits.
    """

    def __init__(self, make: Callable[[int, int], HierarchicalAssignment], stop: Callable[[], bool]) -> None:
        self._make, self._stop = make, stop
        self._hierarchy: HierarchicalAssignment | None = None
        self._ambitious, self._misfit = True, False

    def fitting(self, period: int, bound: int) -> HierarchicalAssignment | None:
        """Return an assignment of which all loads and all jobs are within a period; None where this one is not."""
        hierarchy, known = self._hierarchy, True
        if hierarchy is None or hierarchy.longest > period:
            hierarchy, known = self._make(bound, bound if self._ambitious else period), False
            hierarchy.anneal_all(self._stop)
        if hierarchy.fit(period, self._stop):
            self._hierarchy, self._misfit = hierarchy, False
            return hierarchy
        # It may still do for a longer period, but not time and again.
        self._misfit = known and not self._misfit
        self._hierarchy = hierarchy if self._misfit else None
        if not known:
            # Where servers that are fast enough even for the bound are too few, slower ones may do.
            self._ambitious = not self._ambitious
        return None


_ASSIGNMENT_STEP, _LOOK = 4e-7, 3e-6
"""Deterministic seconds that a step of annealing an assignment to groups counts as, and a block or transfer for which
room is looked for modulo a period: about what compiled code takes for the one and Python for the other."""
_LEAST_STEP, _MOST_STEP = 0.01, 0.5
"""Range of the steps down, as shares of the room between bound and objective. After a least step in vain the first one
is tried again, for chance may find room where it found none; the largest one halves what is open."""
_FIRST_STEP, _MOST_FAILURES = 0.65, 4
"""First step down: groups come close to the bound; and periods tried in vain until another move is made."""
_EXCHANGES_PER_GROUP = 4
"""Fruitless exchanges for each group, after which a period is given up: each group had its turn a few times."""


class PeriodSearch:
    """Periods tried below the best one."""

    def __init__(self, context: Context) -> None:
        self.context, self.solve_state, self.data, self.engine = (
            context,
            context.solve_state,
            context.data,
            context.engine,
        )
        self.rng, self.budget = context.rng, context.budget
        self.candidate_table = CandidateTable(context.data)
        self._hierarchies = Hierarchies(self._new_hierarchy, context.budget.over)
        self._no_goods: dict[NoGood, int] = {}
        self._step = _FIRST_STEP

    def by_groups(self) -> Candidate | None:
        """Insert jobs group by group at shorter periods, with exchanges between groups; return the last plan.

        The next period is shorter still where all jobs found room, and closer to the best one where they did not.
        """
        found: Candidate | None = None
        failures = 0
        while failures < _MOST_FAILURES and not self.budget.over():
            objective, bound = self.solve_state.objective, self.solve_state.bound
            if objective is None:
                break
            plan = self._by_groups_at(objective - max(1, round(self._step * (objective - bound))))
            if plan is None:
                failures += 1
                self._step = self._step / 3 if self._step > _LEAST_STEP else _FIRST_STEP
            else:
                found = self.context.candidate(plan)
                self.context.propose(found)
                self.budget.renew()
                self._step = min(_MOST_STEP, self._step * 2)
        return found

    def _new_hierarchy(self, target: int, longest: int) -> HierarchicalAssignment:
        """Return a new assignment of jobs to groups of servers and blocks in these."""
        threads = self.solve_state.options.threads
        return HierarchicalAssignment(self.candidate_table, target, longest, self.rng, threads, self._count_annealing)

    def _count_annealing(self, steps: int) -> None:
        self.budget.spend(steps * _ASSIGNMENT_STEP)

    def _by_groups_at(self, period: int) -> Timetable | None:
        """Insert all jobs group by group; None where some found no room."""
        hierarchy = self._hierarchies.fitting(period, max(1, self.solve_state.bound))
        if hierarchy is None:
            return None
        assignments = [hierarchy.candidate_set(index).alone for index in range(len(self.data.operations.jobs))]
        weights = self._weights(assignments)
        decomposed = DecomposedInsertion(
            self.candidate_table,
            hierarchy,
            period,
            self.rng,
            self.engine,
            weights,
            self.budget.over,
            self._no_goods,
            self._count_insertion,
        )
        patience = _EXCHANGES_PER_GROUP * max(3, len(hierarchy.groups))
        return decomposed.insert_all(patience)

    def _count_insertion(self, operations: int) -> None:
        self.budget.spend(operations * _LOOK)

    def _weights(self, assignments: Sequence[Assignment]) -> list[float]:
        """Return the lengths of jobs times their links, blurred by chance."""
        return [
            self.rng.uniform(0.9, 1.1)
            * assignment.iteration_us
            * assignment.job.iterations
            * (1 + len(assignment.links))
            for assignment in assignments
        ]

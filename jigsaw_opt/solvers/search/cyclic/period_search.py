"""The move of the cyclic horizon that inserts jobs group by group at shorter periods."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
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


class GroupInsertion:
    """Tries shorter periods, at which jobs are inserted group by group, with exchanges between groups.

    Whether jobs fit into a shorter period shows at once or not at all. So a call has a slice of the limits, which grows
    while it is cut off in vain.
    """

    name: ClassVar[str] = "group_insertion"

    def __init__(self, context: Context) -> None:
        self.context, self.rng, self.budget = context, context.rng, context.budget
        self.candidate_table = context.shared(_candidate_table)
        self._hierarchies = Hierarchies(self._new_hierarchy, context.budget.over)
        self._no_goods: dict[NoGood, int] = {}
        self._step = _FIRST_STEP
        self._slice = context.params.group_insertion.slice
        self._length = Effort(1 / self._slice)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is cyclic, no place is held, and sequences have too many operations to anneal."""
        if not context.cyclic or context.sequenced or context.data.layout.held:
            return False
        return not context.operations.instance.policed or context.shared(_candidate_table).complete

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Try shorter periods.

        The plan of the shortest period found, or None.

        `incumbent`: the best plan so far; not used, since the period is that of the solve state.
        """
        with budget.slice(self._slice * self._length.length):
            found = self.by_groups()
            if found is not None or budget.cut():
                self._length.spent(found is not None)
        return found

    def by_groups(self) -> Candidate | None:
        """Insert jobs group by group at shorter periods, with exchanges between groups; return the last plan.

        The next period is shorter still where all jobs found room, and closer to the best one where they did not.
        """
        found: Candidate | None = None
        failures = 0
        while failures < _MOST_FAILURES and not self.budget.over():
            objective, bound = self.context.solve_state.objective, self.context.solve_state.bound
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
        return HierarchicalAssignment(
            self.candidate_table,
            target,
            longest,
            self.rng,
            self.context.solve_state.options.threads,
            lambda steps: self.budget.spend(steps * _ASSIGNMENT_STEP),
        )

    def _by_groups_at(self, period: int) -> Timetable | None:
        """Insert all jobs group by group; None where some found no room."""
        hierarchy = self._hierarchies.fitting(period, max(1, self.context.solve_state.bound))
        if hierarchy is None:
            return None
        alone = [hierarchy.candidate_set(index).alone for index in range(len(self.context.operations.jobs))]
        lengths = (each.iteration_us * each.job.iterations * (1 + len(each.links)) for each in alone)
        decomposed = DecomposedInsertion(
            self.candidate_table,
            hierarchy,
            period,
            self.rng,
            self.context.engine,
            # The lengths of jobs times their links, blurred by chance.
            [self.rng.uniform(0.9, 1.1) * length for length in lengths],
            self.budget.over,
            self._no_goods,
            lambda operations: self.budget.spend(operations * _LOOK),
        )
        return decomposed.insert_all(_EXCHANGES_PER_GROUP * max(3, len(hierarchy.groups)))


def _candidate_table(context: Context) -> CandidateTable:
    return CandidateTable(context.data)

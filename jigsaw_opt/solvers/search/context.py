"""What all moves of a search share: the compiled instance, random numbers, budget, engine, and the plans found."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.solvers.activities.orders.current import Offer
from jigsaw_opt.solvers.activities.placing import fit_at_once
from jigsaw_opt.solvers.greedy.evaluation import Evaluator, Outcome
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import Demand, Layout
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.solve_state import SolveState

_LIST_OPERATION = 4e-7
"""Deterministic seconds that a block or transfer of a list schedule counts as, about what compiled code takes."""
_MOST_WAITS = 2_000_000
"""Pairs of a block and a transfer of its iteration above which one pass over a sequence takes so long that annealing it
gets nowhere."""
_FEW_OPERATIONS = {"finite": 1_000, "cyclic": 400}
"""Blocks and transfers, by horizon, up to which annealing their sequence gains more than moves that make other list
schedules; more passes fit into the same work, and a pass over a cyclic sequence takes several rounds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class ListSchedule:
    """A placement with priorities, and the list schedule that comes out.

    `priority, offset_us`: by job, the factor on its priority, and its earliest start in microseconds.
    """

    assignments: Sequence[Assignment]
    priority: Sequence[float]
    offset_us: Sequence[int]
    outcome: Outcome

    @property
    def value(self) -> int:
        """Return its objective."""
        return self.outcome.value


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that a move starts from or proposes.

    Parameters
    ----------
    value
        Its objective.
    make
        Makes the plan: called once, and only if the plan is needed.
    """

    value: int
    make: Callable[[], Timetable]

    @cached_property
    def timetable(self) -> Timetable:
        """Return the plan."""
        return self.make()

    def better_than(self, other: Candidate | None) -> bool:
        """Return whether its objective is less than that of another plan, if there is one."""
        return other is None or self.value < other.value


class Context:
    """One search under way, as its moves see it.

    `solve_state`: receives the plans and says when to stop. `budget`: work and time that the search may use. `propose`:
    takes every plan that a move finds, as soon as it is found: a better one becomes the incumbent at once, so that it
    is not lost where the time ends before the move does. It returns nothing, for whether a move has succeeded does not
    depend on what another thread found meanwhile. `stream`: number of this search among several on one incumbent.
    `offer`: the same for a finished plan, and says by how much it is better; `SolveState.offer` where None.
    `held`: GPUs of the jobs that stay there, as `Layout` has them. `operations, data`: the compiled instance, and data
    that are derived from it. `best_list`: the best list schedule so far.
    """

    def __init__(
        self,
        solve_state: SolveState,
        demands: Sequence[Demand],
        rng: random.Random,
        budget: Budget,
        propose: Callable[[Candidate], None],
        stream: int = 0,
        offer: Offer | None = None,
        held: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.solve_state, self.operations, self.rng = solve_state, solve_state.operations, rng
        self.budget, self.propose, self.stream, self.offer = budget, propose, stream, offer or solve_state.offer
        self.params: SearchParams = solve_state.options.params or SearchParams()
        self.data = ProblemData(self.operations, demands, Layout(self.operations, held=held), self.params)
        self.engine = Engine(budget)
        self.best_list: ListSchedule | None = None
        self._looked_at: Timetable | None = None
        self._best_at_once: Candidate | None = None
        self._shared: dict[Callable[[Context], Any], Any] = {}

    @cached_property
    def evaluator(self) -> Evaluator:
        """Return the evaluator, which makes list schedules of data-parallel jobs."""
        return Evaluator(self.operations, self.data.layout)

    @property
    def cyclic(self) -> bool:
        """Return whether the horizon is cyclic."""
        return self.operations.horizon == "cyclic"

    @property
    def all_held(self) -> bool:
        """Return whether no job may go elsewhere."""
        return len(self.data.layout.held) == len(self.operations.jobs)

    @property
    def evaluation_work(self) -> float:
        """Return the deterministic seconds that a list schedule counts as."""
        return self.evaluator.operations_a_look * _LIST_OPERATION

    @property
    def sequenced(self) -> bool:
        """Return whether there are so few operations that annealing their sequence does better than other moves."""
        operations = self.operations
        few = operations.blocks + operations.transfers <= _FEW_OPERATIONS[operations.horizon]
        return few and self.annealable

    @cached_property
    def annealable(self) -> bool:
        """Return whether sequences are annealed at all: there are not too many operations."""
        waits = sum(job.iterations * job.slots * len(job.transfers) for job in self.operations.jobs)
        return waits <= _MOST_WAITS

    @property
    def incumbent(self) -> Candidate | None:
        """Return the best plan so far, of this search or another one beside it, in which all jobs fit at once."""
        best = self.solve_state.incumbent
        if best is None or best[1] is self._looked_at:
            return self._best_at_once
        self._looked_at = best[1]
        if not self.operations.has_scarce_holdings or fit_at_once(self.operations, best[1]):
            self._best_at_once = Candidate(best[0], lambda: best[1])
        return self._best_at_once

    def shared(self, kind: Callable[[Context], T]) -> T:
        """Return the one object of a kind in this search, made when it is first asked for."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: T = self._shared[kind]
        return found

    def candidate(self, found: ListSchedule | Timetable) -> Candidate:
        """Return a list schedule or a plan as a candidate."""
        if isinstance(found, ListSchedule):
            return Candidate(found.value, partial(self.evaluator.timetable, found.outcome))
        return Candidate(objective_of(self.operations, found.jobs, found.period_us), lambda: found)

    def propose_list(self, schedule: ListSchedule) -> None:
        """Keep a list schedule if it is the best one so far, and propose its plan then."""
        if self.best_list is None or schedule.value < self.best_list.value:
            self.best_list = schedule
            self.propose(self.candidate(schedule))


class Effort:
    """A length that grows by half after every call in vain, and starts anew after a success.

    `longest`: the most that it becomes; it begins with 1. `length`: length of the next call, in units of the first one.
    """

    def __init__(self, longest: float) -> None:
        self.longest, self.length = longest, 1.0

    def spent(self, success: bool) -> None:
        """Record whether a call of this length led to a better plan."""
        self.length = 1.0 if success else min(self.longest, 1.5 * self.length)

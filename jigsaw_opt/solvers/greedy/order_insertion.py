"""Schedules made by inserting jobs in an order, each where it ends first (`kernels.order_insertion`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from jigsaw_opt.problem.clock import check_deadline, halting
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble
from jigsaw_opt.solvers.engines.compiled import compiled, fastest, integers
from jigsaw_opt.solvers.engines.magnitude import infinity, orders_fit
from jigsaw_opt.solvers.greedy.flat import decision_in
from jigsaw_opt.solvers.greedy.insertion_lists import InsertionLists, operations_of_iteration
from jigsaw_opt.solvers.kernels.order_insertion import insert_in_order
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import Demand

_LONG = 50_000
"""Number of visits from which an insertion takes so long that the clock has to be checked meanwhile."""
_MOST_VISITS, _MOST_COMPILED_VISITS = 500_000, 50_000_000
"""Visits that Python and the compiled function are asked for: about a second."""


def smith_order(table: ProblemData) -> list[int]:
    """Return the jobs by work over weight, the smallest ratio first.

    Source: Smith, *Various optimizers for single-stage production*, Naval Research Logistics Quarterly 3, 1956.
    """
    jobs = list(zip(table.operations.jobs, table.demands, strict=True))
    ratios = [min(demand.slot_us.values()) * job.slots / job.weight for job, demand in jobs]
    return sorted(range(len(ratios)), key=ratios.__getitem__)


def inserted_by_ratio(table: ProblemData) -> tuple[int, Timetable] | None:
    """Return objective and timetable of Smith's order.

    The result is None where it takes too long, or memory leaves some job no place.
    """
    if not affordable(table.operations):
        return None
    insertion = OrderInsertion(table)
    value = insertion.insert(smith_order(table))
    return None if value >= insertion.infinity else (value, insertion.timetable())


def affordable(operations: Operations) -> bool:
    """Return whether jobs are inserted within about a second, by the compiled function if it is there."""
    native = compiled(insert_in_order) is not None and orders_fit(operations)
    return _visits(operations) <= (_MOST_COMPILED_VISITS if native else _MOST_VISITS)


def _visits(operations: Operations) -> int:
    """Return how many operations are tried at most when all jobs are inserted, each at every server."""
    servers = len(operations.cluster.servers)
    return servers * sum(job.iterations * operations_of_iteration(job) for job in operations.jobs)


class OrderInsertion:
    """A schedule of a finite horizon into which jobs are inserted in an order, each where it ends first.

    `table`: the instance, with what its jobs ask for. `choices`: by job, what it may ask for; the first holds until
    `ask`. Its demand alone unless given.
    """

    def __init__(self, table: ProblemData, choices: Sequence[Sequence[Demand]] | None = None) -> None:
        self.table, self.operations = table, table.operations
        self.choices = choices or [(demand,) for demand in table.demands]
        self._asked = [0] * len(self.choices)
        self.infinity = infinity(self.operations)
        lists = InsertionLists(table, self.choices)
        self._run, self._own = fastest(insert_in_order, orders_fit(self.operations))
        self._class, self._given, self._state = lists.class_of, self._own(lists.given), self._own(lists.state)
        self._long = self._run is insert_in_order and _visits(self.operations) >= _LONG

    def insert(self, order: Sequence[int], limits: Sequence[int] | None = None) -> int:
        """Insert all jobs in an order; what it shares with the last one from the first job on stays.

        The objective; `infinity` where it is above a limit, or where a job found no GPUs with memory.

        `limits`: by position, what the objective of the jobs up to there may be at most.
        """
        numbers = self._own(list(order)), self._own(list(limits or [self.infinity] * len(order)))
        with halting(self._state.halt) if self._long else nullcontext():
            value = int(self._run(self._given, self._state, *numbers))
        if self._state.halt[0]:
            check_deadline()
        return value

    def ask(self, choices: Sequence[int]) -> None:
        """Let jobs ask for other ones of their choices from now on; given the number of the choice of every job."""
        if choices != self._asked:
            for index, choice in enumerate(choices):
                if choice != self._asked[index]:
                    self._given.job_class[index] = self._class[id(self.choices[index][choice])]
            self._asked = list(choices)

    def partial(self) -> list[int]:
        """Return, by position of the last order, the objective of the jobs up to there."""
        return integers(self._state.partial)

    def visits(self) -> int:
        """Return how many operations were tried since this was last asked."""
        visits, self._state.visits[0] = int(self._state.visits[0]), 0
        return visits

    def timetable(self) -> Timetable:
        """Return the timetable, once all jobs are inserted."""
        state, gpus = self._state, self.table.layout.gpus
        level, start, placed = integers(state.level), integers(state.start), integers(state.gpu)
        first, base = integers(self._given.slot_at), integers(self._given.operation_at)
        decisions = [
            decision_in(job, [gpus[gpu] for gpu in placed[at : at + job.slots]], level, start, begin)
            for job, at, begin in zip(self.operations.jobs, first, base, strict=False)
        ]
        return Timetable(assemble(self.operations, decisions))

"""List schedules of placed jobs, whose operations are a `Graph` on flat lists or arrays of numbers (`kernels`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import accumulate, chain
from typing import Any

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import check_deadline, checking_deadline, halting
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision
from jigsaw_opt.solvers.engines.compiled import fastest, integers
from jigsaw_opt.solvers.engines.magnitude import infinity, orders_fit, schedules_fit
from jigsaw_opt.solvers.greedy.insertion_lists import operations_of_iteration
from jigsaw_opt.solvers.kernels.list_scheduling import ListInput, ListScheduleState, list_schedule, repeat_list_schedule
from jigsaw_opt.solvers.kernels.period import Period
from jigsaw_opt.solvers.kernels.sequence import ACROSS_ITERATIONS, FIXED, WITHIN_ITERATION, Graph
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.layout import Layout


class FlatGraph:
    """The operations of an instance, whose jobs are nowhere at first.

    `own`: turns lists of numbers into those that the kernels take. `graph`: its operations; durations of transfers by
    contributors are left to who asks for them. `base`: number of the first operation of every job, and of all
    operations.
    """

    def __init__(self, operations: Operations, layout: Layout, own: Callable[[Any], Any]) -> None:
        jobs = operations.jobs
        self._own = own
        self._gpus, self.resources = len(layout.gpus), len(layout.gpus) + layout.links
        self.base = [0, *accumulate(job.iterations * operations_of_iteration(job) for job in jobs)]
        self._group = [0, *accumulate(job.slots + 1 for job in jobs)]
        self._links = [min(layout.links, 2 * job.slots) if job.slots > 1 else 0 for job in jobs]
        self._placed: list[Assignment | None] = [None] * len(jobs)
        self.graph = own(self._frame(operations))

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return self.base[-1]

    def place(self, index: int, assignment: Assignment) -> bool:
        """Put a job on an assignment; return whether that changed anything."""
        if assignment is self._placed[index]:
            return False
        self._placed[index] = assignment
        job, group = assignment.job, self._group[index]
        if len(assignment.links) > self._links[index]:
            self._make_room(index, len(assignment.links))
        graph = self.graph
        graph.cap[group : group + job.slots] = assignment.caps or [job.levels] * job.slots
        graph.uses[group + job.slots] = len(assignment.links)
        for numbers, at, values in (
            (graph.use, graph.use_at[group], assignment.gpus),
            (graph.use, graph.use_at[group + job.slots], [self._gpus + link for link in assignment.links]),
            (graph.table, graph.table_at[group], list(chain.from_iterable(assignment.tables))),
        ):
            numbers[int(at) : int(at) + len(values)] = values
        return True

    def _make_room(self, index: int, links: int) -> None:
        """Give a job room for more links, at the end of all."""
        group = self._group[index + 1] - 1
        self._links[index], self.graph.use_at[group] = links, len(self.graph.use)
        self.graph = self.graph._replace(use=self._own([*map(int, self.graph.use), *[0] * links]))

    def _frame(self, operations: Operations) -> Graph:
        jobs, cyclic = operations.jobs, operations.horizon == "cyclic"
        uses = [use for job, links in zip(jobs, self._links, strict=True) for use in (*[1] * job.slots, links)]
        tables = [depth for job in jobs for depth in (*[job.levels] * job.slots, 0)]
        *use_at, used = accumulate(uses, initial=0)
        *table_at, tabled = accumulate(tables, initial=0)
        *exchange_at, exchanges = accumulate((len(job.transfers) * job.slots for job in jobs), initial=0)
        job_of: list[int] = []
        group_of: list[int] = []
        first: list[int] = []
        for index, job in enumerate(checking_deadline(jobs)):
            width, group = operations_of_iteration(job), self._group[index]
            job_of += [index] * (width * job.iterations)
            group_of += [*range(group, group + job.slots), *[group + job.slots] * (width - job.slots)] * job.iterations
            for at in range(self.base[index], self.base[index + 1], width):
                first += [at] * width
        last = [base - 1 for base in self.base[1:]]
        return Graph(
            job=job_of,
            group=group_of,
            first=first,
            use_at=use_at,
            uses=uses,
            use=[0] * used,
            cap=[0] * len(uses),
            table_at=table_at,
            table=[0] * tabled,
            slots=[job.slots for job in jobs],
            buckets=[len(job.transfers) for job in jobs],
            iterations=[job.iterations for job in jobs],
            depth=[job.levels for job in jobs],
            contributors=[job.rule.min_contributors for job in jobs],
            exchange_scope=[exchange_scope(job) for job in jobs],
            exchange_at=exchange_at,
            exchange=[0] * exchanges,
            release=[job.release_us for job in jobs],
            begin=self.base[:-1],
            last=last,
            before_begin=last[:] if cyclic else [-1] * len(jobs),
            weight=[job.weight for job in jobs] if operations.objective == "weighted_completion" else [],
        )


def blank_period(size: int, resources: int, infinity: int) -> Period:
    """Return a schedule of so many operations, GPUs and links in which all starts are still 0.

    `infinity`: A number larger than any time, in microseconds.
    """
    lengths = dict.fromkeys(Period._fields, size) | {"free": resources, "user": resources}
    one = {"epoch": [1], "circuit": [0], "iterations": [0], "halt": [0], "infinity": [infinity]}
    return Period(**{name: one.get(name) or [0] * length for name, length in lengths.items()})


def exchange_scope(job: OperationGraph) -> int:
    """Return which exchanges of levels keep the rule of a job (specification: depth-rules)."""
    if job.rule.balance is not None:
        return FIXED
    # What an iteration is worth depends on its numbers of contributors, which exchanges within it leave as they are.
    within = job.rule.multiset is not None or job.rule.progress is not None
    return WITHIN_ITERATION if within else ACROSS_ITERATIONS


def decision_in(job: OperationGraph, gpus: Sequence[Gpu], level: list[int], start: list[int], base: int) -> JobDecision:
    """Return what is chosen for a job in lists with the blocks, transfers and the barrier of each iteration in turn.

    `level, start`: by operation of all jobs. `base`: number of the first one of the job.
    """
    slots, width = job.slots, operations_of_iteration(job)
    begins = range(base, base + width * job.iterations, width)
    return JobDecision(
        gpus,
        [level[at : at + slots] for at in begins],
        [start[at : at + slots] for at in begins],
        [start[at + slots : at + width - 1] for at in begins],
    )


_LONG, _LONG_COMPILED = 2_000, 50_000
"""Numbers of operations from which a schedule may take too long between two checks of the clock."""


class Flat:
    """The jobs of an instance in flat lists; in arrays where compiled functions take them."""

    def __init__(self, operations: Operations, layout: Layout) -> None:
        check_deadline()
        self._cyclic, self._layout = operations.horizon == "cyclic", layout
        fits = orders_fit(operations) if self._cyclic else schedules_fit(operations)
        self._run, numbers = fastest(list_schedule, fits)
        self._repeat = fastest(repeat_list_schedule, fits)[0]
        self._flat = FlatGraph(operations, layout, numbers)
        most = _LONG if self._run is list_schedule else _LONG_COMPILED
        self._long = operations.blocks + operations.transfers >= most
        size, resources, jobs = self._flat.size, self._flat.resources, len(operations.jobs)
        groups, widest = len(self._flat.graph.use_at), max(job.slots for job in operations.jobs)
        self._given = numbers(ListInput([0] * groups, [0] * jobs, [0] * size, [0.0] * jobs, [0] * jobs))
        lengths = dict.fromkeys(ListScheduleState._fields, jobs)
        lengths |= dict.fromkeys(("sequence", "level", "duration", "start"), size)
        lengths |= dict.fromkeys(("free", "skyline", "waiting", "queue"), resources)
        lengths |= {"scheduled": 1, "first": resources + 1, "waits": groups, "order": widest}
        # A job, GPU or link has one event at most, and at a moment each block that takes no time one more.
        lengths |= {"touched": resources + 2 * groups, "events": 1 + 2 * (jobs + resources + groups)}
        blank = {name: [0] * length for name, length in checking_deadline(lengths.items())}
        own = self._schedule = numbers(ListScheduleState(**blank)._replace(priority=[0.0] * jobs))  # type: ignore[arg-type]
        trial = blank_period(size, resources, infinity(operations)) if self._cyclic else blank_period(0, 0, 0)
        # The period is sought for the schedule.
        self._trial = numbers(trial)._replace(sequence=own.sequence, level=own.level, duration=own.duration)
        self.period_us: int | None = None

    def schedule(self, jobs: Sequence[Assignment], rate: Sequence[float], offset_us: Sequence[int]) -> None:
        """Fill in the list schedule of placed jobs, on the cyclic horizon repeated as often as its order admits.

        `rate`: by job; times the iterations left it is the priority of its operations, of which the smallest goes
        first.
        """
        for index, job in enumerate(checking_deadline(jobs) if self._long else jobs):
            if self._flat.place(index, job):
                self._place(index, job)
        given, state, trial = self._given, self._schedule, self._trial
        trial.halt[0] = 0
        given.rate[:] = rate
        hold = [max(hold, job.job.release_us) for hold, job in zip(offset_us, jobs, strict=True)]
        given.earliest[:] = hold
        with halting(trial.halt) if self._long else nullcontext():
            if self._run(self._flat.graph, given, state, trial.halt) < self._flat.size:
                raise OutOfTimeError("the time limit was reached")
            self.period_us = int(self._repeat(self._flat.graph, state, trial)) if self._cyclic else None

    def ends(self) -> list[int]:
        """Return the last barrier of every job, in microseconds."""
        return integers(self._schedule.end)

    def begins(self) -> list[int]:
        """Return the first start of every job, in microseconds."""
        return integers(self._schedule.begin)

    def decisions(self, jobs: Sequence[Assignment]) -> list[JobDecision]:
        """Return what is chosen for the placed jobs."""
        level, start, gpus = integers(self._schedule.level), integers(self._schedule.start), self._layout.gpus
        return [
            decision_in(job.job, [gpus[gpu] for gpu in job.gpus], level, start, base)
            for job, base in zip(jobs, self._flat.base, strict=False)
        ]

    def _place(self, index: int, job: Assignment) -> None:
        """Write down where a job is, beside what its graph tells."""
        graph, own = self._flat.graph, slice(self._flat.base[index], self._flat.base[index + 1])
        group, slots, rest = int(graph.group[own.start]), job.job.slots, [0] * (len(job.job.transfers) + 1)
        self._given.mean_us[group : group + slots] = job.slot_us
        self._given.fixed[index] = int(job.plan.fixed)
        self._given.asked[own] = list(chain.from_iterable([*row, *rest] for row in job.plan.rows))
        exchange = job.exchange if job.job.transfers else [()] * job.job.iterations
        self._schedule.duration[own] = list(chain.from_iterable([*[0] * slots, *row, 0] for row in exchange))

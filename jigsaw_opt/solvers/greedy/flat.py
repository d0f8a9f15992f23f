"""List schedules of placed jobs, whose operations are a `Graph` on flat lists or arrays of numbers (`kernels`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import accumulate, chain

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import check_deadline, checking_deadline, halting
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.engines.compiled import Numbers, arrays, compiled, integers
from jigsaw_opt.solvers.engines.magnitude import infinity, orders_fit, schedules_fit
from jigsaw_opt.solvers.kernels.list_scheduling import ListInput, ListScheduleState, list_schedule, repeat_list_schedule
from jigsaw_opt.solvers.kernels.period import Period
from jigsaw_opt.solvers.kernels.sequence import ACROSS_ITERATIONS, FIXED, WITHIN_ITERATION, Graph
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.layout import Layout


class FlatGraph:
    """The operations of an instance, whose jobs are nowhere at first.

    `graph`: its operations; durations of transfers by contributors are left to who asks for them. `base`: number of the
    first operation of every job, and of all operations. `compiled`: whether there are arrays instead of lists.
    """

    def __init__(self, operations: Operations, layout: Layout) -> None:
        jobs = operations.jobs
        self._gpus, self.resources = len(layout.gpus), len(layout.gpus) + layout.links
        self.base = [0, *accumulate(job.iterations * _width(job) for job in jobs)]
        self._group = [0, *accumulate(job.slots + 1 for job in jobs)]
        self._links = [min(layout.links, 2 * job.slots) if job.slots > 1 else 0 for job in jobs]
        self._placed: list[Assignment | None] = [None] * len(jobs)
        self.compiled = False
        self.graph = self._frame(operations)

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

    def compile(self) -> None:
        """Turn to arrays."""
        self.graph, self.compiled = arrays(self.graph), True

    def _make_room(self, index: int, links: int) -> None:
        """Give a job room for more links, at the end of all."""
        group = self._group[index + 1] - 1
        self._links[index], self.graph.use_at[group] = links, len(self.graph.use)
        use: Numbers = [*map(int, self.graph.use), *[0] * links]
        self.graph = self.graph._replace(use=arrays(use) if self.compiled else use)

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
            width, group = _width(job), self._group[index]
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
    return WITHIN_ITERATION if job.rule.multiset is not None else ACROSS_ITERATIONS


def _width(job: OperationGraph) -> int:
    """Return the number of operations of an iteration."""
    return job.slots + len(job.transfers) + 1


_LONG = {True: 50_000, False: 2_000}
"""Numbers of operations from which a schedule, compiled or not, may take too long between two checks of the clock."""


class Flat:
    """The jobs of an instance in flat lists; in arrays, once there are compiled functions to take them."""

    def __init__(self, operations: Operations, layout: Layout) -> None:
        check_deadline()
        self._flat = FlatGraph(operations, layout)
        self._cyclic = operations.horizon == "cyclic"
        self._large = not (orders_fit(operations) if self._cyclic else schedules_fit(operations))
        self._size = operations.blocks + operations.transfers
        size, resources, jobs = self._flat.size, self._flat.resources, len(operations.jobs)
        groups, widest = len(self._flat.graph.use_at), max(job.slots for job in operations.jobs)
        self._given = ListInput([0] * groups, [0] * jobs, [0] * size, [0.0] * jobs, [0] * jobs)
        lengths = dict.fromkeys(ListScheduleState._fields, jobs)
        lengths |= dict.fromkeys(("sequence", "level", "duration", "start"), size)
        lengths |= dict.fromkeys(("free", "skyline", "waiting", "queue"), resources)
        lengths |= {"scheduled": 1, "first": resources + 1, "waits": groups, "order": widest}
        # A job, GPU or link has one event at most, and at a moment each block that takes no time one more.
        lengths |= {"touched": resources + 2 * groups, "events": 1 + 2 * (jobs + resources + groups)}
        blank = {name: [0] * length for name, length in checking_deadline(lengths.items())}
        self._schedule = ListScheduleState(**blank)._replace(priority=[0.0] * jobs)  # type: ignore[arg-type]
        self._trial = blank_period(size, resources, infinity(operations)) if self._cyclic else blank_period(0, 0, 0)
        self._share()
        self.period_us: int | None = None

    def schedule(self, jobs: Sequence[Assignment], rate: Sequence[float], offset_us: Sequence[int]) -> None:
        """Fill in the list schedule of placed jobs, on the cyclic horizon repeated as often as its order admits.

        `rate`: by job; times the iterations left it is the priority of its operations, of which the smallest goes
        first.
        """
        self._hasten()
        long = self._size >= _LONG[self._flat.compiled]
        for index, job in enumerate(checking_deadline(jobs) if long else jobs):
            if self._flat.place(index, job):
                self._place(index, job)
        given, state, trial = self._given, self._schedule, self._trial
        trial.halt[0] = 0
        given.rate[:] = arrays(list(rate)) if self._flat.compiled else rate
        hold = [max(hold, job.job.release_us) for hold, job in zip(offset_us, jobs, strict=True)]
        given.earliest[:] = arrays(hold) if self._flat.compiled else hold
        schedule: Callable[..., int] = list_schedule
        repeat: Callable[..., int] = repeat_list_schedule
        if self._flat.compiled:
            schedule, repeat = compiled(list_schedule) or schedule, compiled(repeat_list_schedule) or repeat
        with halting(trial.halt) if long else nullcontext():
            if schedule(self._flat.graph, given, state, trial.halt) < self._flat.size:
                raise OutOfTimeError("the time limit was reached")
            self.period_us = int(repeat(self._flat.graph, state, trial)) if self._cyclic else None

    def ends(self) -> list[int]:
        """Return the last barrier of every job, in microseconds."""
        return integers(self._schedule.end)

    def begins(self) -> list[int]:
        """Return the first start of every job, in microseconds."""
        return integers(self._schedule.begin)

    def levels(self, index: int) -> list[list[int]]:
        """Return the levels of a job by iteration and slot."""
        return self._by_iteration(index, self._schedule.level, 0, int(self._flat.graph.slots[index]))

    def blocks(self, index: int) -> list[list[int]]:
        """Return the starts of the blocks of a job by iteration and slot, in microseconds."""
        return self._by_iteration(index, self._schedule.start, 0, int(self._flat.graph.slots[index]))

    def transfers(self, index: int) -> list[list[int]]:
        """Return the starts of the transfers of a job by iteration and bucket, in microseconds."""
        slots, buckets = int(self._flat.graph.slots[index]), int(self._flat.graph.buckets[index])
        return self._by_iteration(index, self._schedule.start, slots, slots + buckets)

    def _by_iteration(self, index: int, numbers: Numbers, first: int, final: int) -> list[list[int]]:
        """Return the numbers of some operations of every iteration of a job."""
        begin, end = self._flat.base[index], self._flat.base[index + 1]
        flat, width = integers(numbers[begin:end]), (end - begin) // int(self._flat.graph.iterations[index])
        return [flat[at + first : at + final] for at in range(0, end - begin, width)]

    def _place(self, index: int, job: Assignment) -> None:
        """Write down where a job is, beside what its graph tells."""
        graph, own = self._flat.graph, slice(self._flat.base[index], self._flat.base[index + 1])
        group, slots, rest = int(graph.group[own.start]), job.job.slots, [0] * (len(job.job.transfers) + 1)
        self._given.mean_us[group : group + slots] = job.slot_us
        self._given.fixed[index] = int(job.plan.fixed)
        self._given.asked[own] = list(chain.from_iterable([*row, *rest] for row in job.plan.rows))
        exchange = job.exchange if job.job.transfers else [()] * job.job.iterations
        self._schedule.duration[own] = list(chain.from_iterable([*[0] * slots, *row, 0] for row in exchange))

    def _hasten(self) -> None:
        """Take the compiled functions if there are any."""
        if self._flat.compiled or self._large:
            return
        if compiled(list_schedule) and (compiled(repeat_list_schedule) or not self._cyclic):
            self._flat.compile()
            self._given, self._schedule = arrays(self._given), arrays(self._schedule)
            self._trial = arrays(self._trial)
            self._share()

    def _share(self) -> None:
        """Let the period be sought for the schedule."""
        schedule = self._schedule
        self._trial = self._trial._replace(sequence=schedule.sequence, level=schedule.level, duration=schedule.duration)

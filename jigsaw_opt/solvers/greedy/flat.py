"""List schedules of placed jobs, made on flat lists or arrays of numbers (`kernels`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import check_deadline, checking_deadline, halting
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.assignments.assignment import Assignment
from jigsaw_opt.solvers.assignments.layout import Layout
from jigsaw_opt.solvers.engines.compiled import Numbers, arrays, compiled, integers
from jigsaw_opt.solvers.engines.magnitude import infinity, orders_fit, schedules_fit
from jigsaw_opt.solvers.greedy.flat_graph import FlatGraph, blank_period
from jigsaw_opt.solvers.kernels.list_scheduling import ListInput, ListScheduleState, list_schedule, repeat_list_schedule

__all__ = ["Flat"]

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

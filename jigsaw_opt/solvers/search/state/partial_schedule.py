"""A partial schedule: jobs are removed from it and inserted again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jigsaw_opt.problem.calendar import Calendar, union
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.search.state.insertion import FrozenPrefix, ScheduledJob, insert_job


class PartialSchedule:
    """A timetable under construction.

    `period`: the period in microseconds, or None on the finite horizon. `moment`: what starts earlier is history: once
    on the timelines it never leaves them. `placement`: GPUs and levels of the jobs. `scheduled`: each job as it is
    scheduled, or None. `frozen`: past operations of each job, or None.
    """

    def __init__(self, data: ProblemData, period: int | None, moment: int = 0) -> None:
        self.data, self.period, self.moment = data, period, moment
        self.placement = PartialPlacement(data)
        self.scheduled: list[ScheduledJob | None] = [None] * len(data.operations.jobs)
        self.frozen: list[FrozenPrefix | None] = [None] * len(data.operations.jobs)
        self.gpus = [Calendar(period) for _ in data.layout.gpus]
        self.links = [Calendar(period) for _ in range(data.layout.links)]

    def channel(self, assignment: Assignment) -> Calendar:
        """Return the times when the links of an assignment are free together."""
        return union([self.links[link] for link in assignment.links], self.period)

    def inserted(
        self, index: int, assignment: Assignment, begin: int, latest: int | None, channel: Calendar | None = None
    ) -> ScheduledJob | None:
        """Return the job as it would be inserted, None where it finds no room; nothing changes.

        `latest`: latest end, in microseconds; None for no limit.
        """
        gpus = [self.gpus[gpu] for gpu in assignment.gpus]
        link = self.channel(assignment) if channel is None else channel
        job, frozen, moment = self.data.operations.jobs[index], self.frozen[index], begin
        while (found := insert_job(job, assignment, gpus, link, moment, latest, frozen)) is not None:
            later = self._room_after(found)
            if later is None:
                return found
            if later <= found.start or frozen is not None:
                return None
            moment = later
        return None

    def _room_after(self, found: ScheduledJob) -> int | None:
        """Return the end of a job that takes memory from another one meanwhile; None where memory suffices for both."""
        data = self.data
        if not data.layout.in_time:
            return None
        deepest = [max(column) for column in zip(*found.levels, strict=True)]
        for gpu, level in zip(found.assignment.gpus, deepest, strict=True):
            beside = []
            for other, activations in self.placement.on_gpu[gpu].items():
                own = self.scheduled[other]
                if own is not None and own.start < found.end and found.start < own.end:
                    beside.append((own, activations))
            # The most is taken where one of them begins.
            for moment in sorted({found.start, *(own.start for own, _ in beside if own.start > found.start)}):
                present = [(own, size) for own, size in beside if own.start <= moment < own.end]
                states = found.job.state_bytes + sum(own.job.state_bytes for own, _ in present)
                largest = max([found.job.activation_bytes[level - 1], *(size for _, size in present)])
                if states + largest > data.layout.memory[gpu]:
                    return min((own.end for own, _ in present), default=found.start)
        return None

    def add(self, index: int, scheduled: ScheduledJob) -> None:
        """Add a scheduled job."""
        self.scheduled[index] = scheduled
        self.placement.place(
            index, scheduled.assignment, [max(column) for column in zip(*scheduled.levels, strict=True)]
        )
        self._book(scheduled, Calendar.add)

    def remove(self, index: int) -> ScheduledJob:
        """Remove a job, and return it as it was scheduled."""
        scheduled = self.scheduled[index]
        if scheduled is None:
            raise ValueError(f"job {index} is not laid")
        self.scheduled[index] = None
        self.placement.unplace(index)
        self._book(scheduled, Calendar.remove)
        return scheduled

    def admits(self, scheduled: ScheduledJob) -> bool:
        """Return whether all that a job starts from the moment on is free where it lies."""
        return self._room_after(scheduled) is None and all(
            calendar.earliest(start, end - start) == start
            for calendar, start, end in self._intervals(scheduled)
            if start >= self.moment
        )

    def freeze(self, index: int, scheduled: ScheduledJob) -> bool:
        """Make what a job has started before the moment busy for good; return False where that overlaps something."""
        self.frozen[index] = FrozenPrefix(self.moment, scheduled)
        free = True
        for calendar, start, end in self._intervals(scheduled):
            if start < self.moment:
                free = free and calendar.earliest(start, end - start) == start
                calendar.add(start, end)
        return free

    def _book(self, scheduled: ScheduledJob, change: Callable[[Calendar, int, int], None]) -> None:
        for calendar, start, end in self._intervals(scheduled):
            if start >= self.moment:
                change(calendar, start, end)

    def _intervals(self, scheduled: ScheduledJob) -> Iterator[tuple[Calendar, int, int]]:
        """Yield the busy times of the blocks and transfers of a job."""
        assignment = scheduled.assignment
        links = [self.links[link] for link in assignment.links]
        for levels, starts, moves, exchange in zip(
            scheduled.levels, scheduled.blocks, scheduled.transfers, assignment.exchange, strict=True
        ):
            for gpu, table, level, start in zip(assignment.gpus, assignment.tables, levels, starts, strict=True):
                yield self.gpus[gpu], start, start + table[level - 1]
            for link in links:
                for start, duration in zip(moves, exchange, strict=True):
                    yield link, start, start + duration

    def timetable(self) -> Timetable:
        """Return the timetable, once all jobs are scheduled."""
        gpus = self.data.layout.gpus
        decisions = [
            JobDecision([gpus[gpu] for gpu in job.assignment.gpus], job.levels, job.blocks, job.transfers)
            for job in self.scheduled
            if job is not None
        ]
        return Timetable(assemble(self.data.operations, decisions), self.period)

    def read(self, index: int, plan: JobPlan) -> ScheduledJob:
        """Return a job as a plan has it, with its levels as they are; nothing changes."""
        data = self.data
        job = data.operations.jobs[index]
        gpus = [data.number[name] for name in plan.gpus]
        rows = plan.levels
        assignment = data.planned(index, gpus, rows, [job.levels] * job.slots, data.demands[index])
        blocks = [[block.start_us for block in iteration.blocks] for iteration in plan.iterations]
        moves = [[transfer.start_us for transfer in iteration.transfers] for iteration in plan.iterations]
        return ScheduledJob(job, assignment, list(rows), blocks, moves, min(blocks[0]), plan.end_us)

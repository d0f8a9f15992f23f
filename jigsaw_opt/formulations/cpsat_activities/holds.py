"""Memory over time: slots while their job is present, holds between two blocks (specification: holds, memory)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_activities.variables import Gpus, ModuloAxis, TaskGraphVariables, TimeAxis
from jigsaw_opt.formulations.cpsat_activities.workers import WorkerJobs
from jigsaw_opt.formulations.cpsat_timetable.presence import Presence, add_memory_in_time, add_presence
from jigsaw_opt.problem.compiled.task_graph import NumberedHold

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_activities.variables import Expression

_MOST_NUMBER = 2**60
"""The engine's sums stay below 2^63."""


def add_memory(
    model: cp_model.CpModel, gpus: Gpus, jobs: Sequence[TaskGraphVariables], axis: TimeAxis, workers: WorkerJobs
) -> None:
    """Require that on no GPU slots, workers and holds exceed its memory at any moment.

    Notes
    -----
    All sizes are divided by their greatest common divisor: small demands keep the engine's sums within its integers.
    """
    if workers.operations.has_scarce_memory:
        _add_present_memory(model, gpus, jobs, axis, workers)
    else:
        _add_memory_of_all(model, gpus, jobs, axis, workers)


def _add_present_memory(
    model: cp_model.CpModel, gpus: Gpus, jobs: Sequence[TaskGraphVariables], axis: TimeAxis, workers: WorkerJobs
) -> None:
    """Require it of the jobs that are present at a moment of the finite horizon."""
    spans = []
    for job_vars in jobs:
        job_vars.presence = _presence(model, job_vars, axis)
        spans.append([_Span(model, job_vars, hold, axis) for hold in job_vars.graph.holds])
    for g in range(len(gpus.all)):
        others: list[tuple[cp_model.IntervalVar, int]] = []
        for job_vars, own in zip(jobs, spans, strict=True):
            assert job_vars.presence is not None, "it was added above"
            for slot, at in zip(job_vars.graph.shape.slots, job_vars.at, strict=True):
                if g in at and slot.memory:
                    others.append((job_vars.presence.interval(model, at[g]), slot.memory))
            for span in own:
                literal = job_vars.at[span.hold.slot].get(g)
                if literal is not None and span.hold.bytes:
                    intervals = (axis.intervals(model, offset, length, literal) for offset, length, _ in span.rows)
                    others += [(interval, span.hold.bytes) for (interval,) in intervals]
        add_memory_in_time(model, gpus.memory(g), workers.present(g), others)


def _presence(model: cp_model.CpModel, job_vars: TaskGraphVariables, axis: TimeAxis) -> Presence:
    """Add the presence of a task-graph job."""
    last, operations = len(job_vars.starts) - 1, range(job_vars.graph.size)
    # Each operation of an iteration waits for itself in the one before.
    starts = [job_vars.start(0, operation) for operation in operations]
    ends = [job_vars.end(last, operation) for operation in operations]
    return add_presence(model, starts, ends, min(job_vars.graph.job.release_us, axis.limit), axis.limit)


def _add_memory_of_all(
    model: cp_model.CpModel, gpus: Gpus, jobs: Sequence[TaskGraphVariables], axis: TimeAxis, workers: WorkerJobs
) -> None:
    """Require it of all jobs, which are always present."""
    unit = gcd(
        workers.memory_unit(),
        *(hold.bytes for job_vars in jobs for hold in job_vars.graph.holds),
        *(slot.memory for job_vars in jobs for slot in job_vars.graph.shape.slots),
    )
    if unit == 0:
        return
    spans = {id(job_vars): [_Span(model, job_vars, hold, axis) for hold in job_vars.graph.holds] for job_vars in jobs}
    if axis.horizon == "cyclic":
        for job_vars in jobs:
            _add_held_time(model, gpus, job_vars, spans[id(job_vars)], axis, unit)
    for g in range(len(gpus.all)):
        taken = _Taken(model, axis, unit)
        for literal, demand in workers.memory(g, unit, gpus.memory(g) // unit):
            taken.always(literal, demand)
        for job_vars in jobs:
            for slot, at in zip(job_vars.graph.shape.slots, job_vars.at, strict=True):
                if g in at and slot.memory:
                    taken.always(at[g], slot.memory // unit)
            for span in spans[id(job_vars)]:
                if g in job_vars.at[span.hold.slot]:
                    span.add_to(taken, job_vars.at[span.hold.slot][g])
        taken.close(gpus.memory(g) // unit)


class _Taken:
    """The memory that is taken of one GPU, in units."""

    def __init__(self, model: cp_model.CpModel, axis: TimeAxis, unit: int) -> None:
        self.model, self.axis, self.unit = model, axis, unit
        self.intervals: list[cp_model.IntervalVar] = []
        self.demands: list[Expression] = []

    def always(self, literal: cp_model.IntVar, demand: Expression) -> None:
        """Take memory all the time where a literal holds."""
        whole = self.model.new_optional_fixed_size_interval_var(0, max(1, self.axis.span), literal, "")
        self.add([whole], demand)

    def add(self, intervals: Sequence[cp_model.IntervalVar], demand: Expression) -> None:
        """Take memory for some intervals."""
        self.intervals += intervals
        self.demands += [demand] * len(intervals)

    def close(self, capacity: int) -> None:
        """Require that no more is taken than there is."""
        self.model.add_cumulative(self.intervals, self.demands, capacity)


class _Span:
    """The length of a hold in each iteration: a part within a period, and whole periods besides."""

    def __init__(
        self, model: cp_model.CpModel, job_vars: TaskGraphVariables, hold: NumberedHold, axis: TimeAxis
    ) -> None:
        self.hold, self.modulo = hold, isinstance(axis, ModuloAxis)
        self.rows: list[tuple[cp_model.IntVar, cp_model.IntVar, Expression]] = []
        forward = hold.end in job_vars.graph.longest_from(hold.start, [0] * job_vars.graph.size)
        for iteration, row in enumerate(job_vars.starts):
            start, end = row[hold.start], job_vars.end(iteration, hold.end)
            length = model.new_int_var(0, axis.limit, "")
            # Longer than a period, it overlaps copies of itself.
            most = 2 * job_vars.graph.size * job_vars.graph.job.iterations + 1
            periods: Expression = model.new_int_var(0, most, "") if self.modulo else 0
            whole = length + axis.limit * periods
            # Without waits that lead from start to end, the end may come first. The memory interval then takes no
            # time, and its length cannot be negative.
            model.add(whole == end - start.start if forward else whole >= end - start.start)
            self.rows.append((start.offset, length, periods))

    def time(self, axis: TimeAxis) -> Expression:
        """Return how long it lasts in all iterations."""
        return sum(length + axis.limit * periods for _, length, periods in self.rows)

    def add_to(self, taken: _Taken, literal: cp_model.IntVar) -> None:
        """Take the bytes on a GPU where the slot is there."""
        demand = self.hold.bytes // taken.unit
        for offset, length, periods in self.rows:
            taken.add(taken.axis.intervals(taken.model, offset, length, literal), demand)
            if self.modulo:
                taken.always(literal, periods * demand)


def _add_held_time(
    model: cp_model.CpModel, gpus: Gpus, job_vars: TaskGraphVariables, spans: Sequence[_Span], axis: TimeAxis, unit: int
) -> None:
    """Fit bytes times time of a slot's holds into a period: implied, but the engine's relaxation needs it.

    The lengths of holds are sums of waits, so waits alone then show that a period is too short.
    """
    for number, (slot, at) in enumerate(zip(job_vars.graph.shape.slots, job_vars.at, strict=True)):
        own = [span for span in spans if span.hold.slot == number]
        # The GPU is not known here, so that the one with most memory counts. Sizes are multiples of the unit, and the
        # rest of the room is never used.
        room = max((gpus.memory(g) - slot.memory for g in at), default=0) // unit
        demands = [span.hold.bytes // unit for span in own]
        longest = 2 * axis.limit * (job_vars.graph.size * job_vars.graph.job.iterations + 1)
        if own and max(sum(demands), room) * job_vars.graph.job.iterations * longest < _MOST_NUMBER:
            taken = sum(demand * span.time(axis) for demand, span in zip(demands, own, strict=True))
            model.add(taken <= room * axis.later(1))

"""Memory of GPUs: workers and slots while their job is present, holds between blocks (specification: memory, holds).

Jobs are present all the time, unless memory is scarce on the finite horizon, where they may follow one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

from jigsaw_opt.formulations.cpsat.variables import (
    Axis,
    InstanceVariables,
    JobVariables,
    ModuloAxis,
    TaskGraphVariables,
)
from jigsaw_opt.formulations.cpsat_model import CpSatRows
from jigsaw_opt.formulations.timetable.channel import encode_maximum
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import NumberedHold
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression
    from jigsaw_opt.formulations.timetable.order_encoding import OrderEncoding


@dataclass(frozen=True, slots=True)
class Presence:
    """The time from the start of a job's first operation to the end of its last one; longer helps no plan."""

    begin: cp_model.IntVar
    length: cp_model.IntVar
    end: cp_model.IntVar

    def interval(self, model: cp_model.CpModel, literal: cp_model.IntVar | bool) -> cp_model.IntervalVar:
        """Return this time as an interval where a literal holds."""
        return model.new_optional_interval_var(self.begin, self.length, self.end, literal, "")

    def hint(self, model: cp_model.CpModel, plan: JobPlan | TaskGraphJobPlan) -> None:
        """Hint the presence of a job in a plan."""
        begin, end = plan.start_us, plan.end_us
        for variable, value in ((self.begin, begin), (self.length, end - begin), (self.end, end)):
            model.add_hint(variable, value)


def _add_presence(
    model: cp_model.CpModel, starts: Iterable[Any], ends: Sequence[Any], earliest: int, latest: int
) -> Presence:
    """Add the presence of a job.

    `starts, ends`: starts of the operations that may be its first, and ends of those that may be its last. `earliest,
    latest`: the job neither starts earlier nor ends later, in microseconds.
    """
    latest = max(earliest, latest)
    begin, end = model.new_int_var(earliest, latest, ""), model.new_int_var(earliest, latest, "")
    length = model.new_int_var(0, latest - earliest, "")
    for start in starts:
        model.add(begin <= start)
    for last in ends:
        model.add(end == last if len(ends) == 1 else end >= last)
    model.add(length == end - begin)
    return Presence(begin, length, end)


def presence_of(model: cp_model.CpModel, job_vars: JobVariables | TaskGraphVariables, latest: int) -> Presence:
    """Return the presence of a job, which is added the first time; none with a task graph ends after `latest`."""
    if job_vars.presence is None:
        if isinstance(job_vars, TaskGraphVariables):
            last, operations = len(job_vars.starts) - 1, range(job_vars.graph.size)
            # Each operation of an iteration waits for itself in the one before.
            starts: Sequence[Expression] = [job_vars.start(0, operation) for operation in operations]
            ends: Sequence[Expression] = [job_vars.end(last, operation) for operation in operations]
            earliest = min(job_vars.graph.job.release_us, latest)
        else:
            starts, ends, earliest = [*job_vars.starts[0].values()], job_vars.ends[-1:], job_vars.window.release
            latest = job_vars.window.deadline
        job_vars.presence = _add_presence(model, starts, ends, earliest, latest)
    return job_vars.presence


@dataclass(frozen=True)
class PresentWorker:
    """A worker that a GPU may hold while its job is present.

    `uses`: bytes of its activations by level, each with a literal that it has the level in some iteration.
    """

    model: cp_model.CpModel
    presence: Presence
    assigned: cp_model.IntVar
    state: int
    uses: Sequence[tuple[int, cp_model.IntVar]]

    @cached_property
    def largest(self) -> OrderEncoding[cp_model.IntVar]:
        """Its largest activations."""
        return encode_maximum(CpSatRows(self.model), self.uses)

    @cached_property
    def interval(self) -> cp_model.IntervalVar:
        """Its presence there."""
        return self.presence.interval(self.model, self.assigned)

    @cached_property
    def rises(self) -> list[tuple[cp_model.IntervalVar, int]]:
        """What its activations take beyond their least size: by step of their encoding, an interval and bytes."""
        sizes = pairwise(self.largest.values)
        return [
            (self.presence.interval(self.model, step), high - low)
            for step, (low, high) in zip(self.largest.steps, sizes, strict=True)
        ]


def worker_on(model: cp_model.CpModel, job_vars: JobVariables, g: int) -> PresentWorker:
    """Return the worker that a GPU may hold of a data-parallel job."""
    presence = presence_of(model, job_vars, job_vars.window.deadline)
    return PresentWorker(model, presence, job_vars.assigned[g], job_vars.job.state_bytes, job_vars.activations(g))


def add_memory_in_time(
    model: cp_model.CpModel,
    memory: int,
    workers: Iterable[PresentWorker],
    others: Sequence[tuple[cp_model.IntervalVar, int]] = (),
) -> None:
    """State that a GPU holds, at every moment, the states of the workers present and the largest activations of them.

    `others`: what else takes memory, as intervals and bytes.

    Notes
    -----
    For each worker, all that is present while it is there fits beside its own activations. That of a moment's worker
    with the largest ones is the condition of that moment, and implies those of the others.
    """
    others = [(interval, min(size, memory + 1)) for interval, size in others]
    present = [kept for worker in workers if (kept := _within(worker, memory)) is not None]
    # Whoever is present takes at least the least activations, but other things take none.
    common = 0 if others else min((worker.largest.values[0] for worker in present), default=0)
    for group in _deciding_groups(present, memory, common, sum(size for _, size in others)) or [[]]:
        taken = [*others]
        for number, worker in enumerate(present):
            own = worker.largest.values[0] - common if number in group else 0
            taken.append((worker.interval, worker.state + own))
            taken += worker.rises if number in group else ()
        _add_cumulative(model, [part for part in taken if part[1]], memory - common)


def add_held_capacities(
    model: cp_model.CpModel, operations: Operations, jobs: Sequence[JobVariables | TaskGraphVariables], axis: Axis
) -> None:
    """State that jobs that are present at a moment hold no more than there is (specification: licences).

    On the cyclic horizon all jobs are always present, and a disjunction of nothing is false.
    """
    numbered = dict(zip(operations.names, jobs, strict=True))
    for capacity in operations.instance.scarce_capacities:
        if axis.horizon == "cyclic":
            model.add_bool_or([])
            return
        taken = [
            (presence_of(model, numbered[name], axis.limit).interval(model, True), amount)
            for name, amount in capacity.amounts.items()
            if name in numbered
        ]
        _add_cumulative(model, taken, capacity.units)


def _within(worker: PresentWorker, memory: int) -> PresentWorker | None:
    """Forbid a worker the levels that do not fit alone, and return it with the others; None where none is left."""
    room = memory - worker.state
    for size, literal in worker.uses:
        if size > room:
            worker.model.add(literal == 0)
    kept = [(size, literal) for size, literal in worker.uses if size <= room]
    return replace(worker, uses=kept) if kept else None


def _deciding_groups(workers: Sequence[PresentWorker], memory: int, common: int, others: int) -> list[list[int]]:
    """Return the workers whose activations may decide, in groups of which no two are ever present together."""
    groups: list[list[int]] = []
    for number, worker in enumerate(workers):
        most = worker.largest.values[-1]
        # All that may be present while no other one has larger activations; of equal ones the last decides.
        beside = (
            other.state
            for k, other in enumerate(workers)
            if k != number and (other.largest.values[0], k) < (most, number)
        )
        if most <= common or worker.state + most + sum(beside) + others <= memory:
            continue
        for group in groups:
            if all(_exclude(worker, workers[k], memory) for k in group):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _exclude(one: PresentWorker, other: PresentWorker, memory: int) -> bool:
    """Return whether two workers do not fit together, whatever their levels."""
    return one.state + other.state + max(one.largest.values[0], other.largest.values[0]) > memory


def _add_cumulative(model: cp_model.CpModel, taken: Sequence[tuple[cp_model.IntervalVar, int]], capacity: int) -> None:
    """Keep to a capacity; small numbers keep the engine's sums within its integers."""
    if sum(size for _, size in taken) > capacity:
        unit = gcd(*(size for _, size in taken))
        model.add_cumulative([own for own, _ in taken], [size // unit for _, size in taken], capacity // unit)


_MOST_NUMBER = 2**60
"""The engine's sums stay below 2^63."""


def add_memory(instance_vars: InstanceVariables) -> None:
    """Require that on no GPU workers, slots and holds exceed its memory at any moment, nor jobs what else they hold.

    Notes
    -----
    All sizes are divided by their greatest common divisor: small demands keep the engine's sums within its integers.
    """
    model, eligibility, axis = instance_vars.proto, instance_vars.eligibility, instance_vars.axis
    operations, jobs, graphs = eligibility.operations, instance_vars.jobs, instance_vars.graphs
    held = [_HeldSlot(model, own, number, axis) for own in graphs for number in range(len(own.at))]
    for g in range(len(eligibility.gpus)):
        workers, memory = [job_vars for job_vars in jobs if g in job_vars.assigned], eligibility.memory(g)
        slots = [slot for slot in held if g in slot.at]
        unlimited = axis.horizon == "cyclic" and any(slot.holds for slot in slots)
        if not unlimited and sum(operations.most_bytes_on(eligibility.gpu_type(g))) <= memory:
            continue
        if operations.has_scarce_holdings:
            others = [part for slot in slots for part in slot.while_present(g)]
            add_memory_in_time(model, memory, [worker_on(model, own, g) for own in workers], others)
        else:
            _add_memory_of_all(model, g, memory, workers, slots, axis)
    add_held_capacities(model, operations, [*jobs, *graphs], axis)
    for slot in held if axis.horizon == "cyclic" else ():
        slot.add_held_time(max((eligibility.memory(g) for g in slot.at), default=0))


def _add_memory_of_all(
    model: cp_model.CpModel,
    g: int,
    memory: int,
    workers: Sequence[JobVariables],
    slots: Sequence[_HeldSlot],
    axis: Axis,
) -> None:
    """Require it of all jobs, which are always present."""
    always = [*_always_taken(model, g, workers), *((slot.at[g], slot.memory) for slot in slots if slot.memory)]
    holds = [(slot.at[g], span) for slot in slots for span in slot.spans]
    unit = gcd(*(size for _, size in always), *(span.hold.bytes for _, span in holds))
    if unit == 0:
        return
    room = memory // unit
    # What is beyond the room is one unit too many.
    whole = [(literal, min(size // unit, room + 1)) for literal, size in always]
    if not holds:
        model.add(sum(demand * literal for literal, demand in whole) <= room)
        return
    everywhere: list[tuple[cp_model.IntVar, Expression]] = [*whole]
    intervals: list[tuple[cp_model.IntervalVar, Expression]] = []
    for literal, span in holds:
        demand = min(span.hold.bytes // unit, room + 1)
        for offset, length, periods in span.rows:
            intervals += [(interval, demand) for interval in axis.intervals(model, offset, length, literal)]
            # For whole periods it is there all the time.
            everywhere += [(literal, demand * periods)] if isinstance(axis, ModuloAxis) else []
    for literal, taken in everywhere:
        everytime = model.new_optional_fixed_size_interval_var(0, max(1, axis.span), literal, "")
        intervals.append((everytime, taken))
    model.add_cumulative([own for own, _ in intervals], [taken for _, taken in intervals], room)


def _always_taken(
    model: cp_model.CpModel, g: int, workers: Sequence[JobVariables]
) -> list[tuple[cp_model.IntVar, int]]:
    """Return what workers that are always present take of a GPU: literals, each with its bytes where it holds.

    The largest activations take the order encoding of the sizes that occur: up to the step that is reached, the rises
    add up to the largest size.
    """
    if not workers:
        return []
    uses = [use for job_vars in workers for use in job_vars.activations(g)]
    largest = encode_maximum(CpSatRows(model), [(0, workers[0].assigned[g]), *uses])
    states = [(own.assigned[g], own.job.state_bytes) for own in workers if own.job.state_bytes]
    return [*states, *zip(largest.steps, (high - low for low, high in pairwise(largest.values)), strict=True)]


class _HeldSlot:
    """A slot of a task-graph job, and what it holds."""

    def __init__(self, model: cp_model.CpModel, graph_vars: TaskGraphVariables, number: int, axis: Axis) -> None:
        self._model, self._graph_vars, self._axis = model, graph_vars, axis
        self.at, self.memory = graph_vars.at[number], graph_vars.graph.shape.slots[number].memory
        self.holds = [hold for hold in graph_vars.graph.holds if hold.slot == number]

    @cached_property
    def spans(self) -> list[_Span]:
        """How long it holds what it holds."""
        return [_Span(self._model, self._graph_vars, hold, self._axis) for hold in self.holds]

    def while_present(self, g: int) -> list[tuple[cp_model.IntervalVar, int]]:
        """Return what it takes of a GPU while its job is present on the finite horizon, as intervals and bytes."""
        literal, found = self.at[g], list[tuple["cp_model.IntervalVar", int]]()
        if self.memory:
            presence = presence_of(self._model, self._graph_vars, self._axis.limit)
            found.append((presence.interval(self._model, literal), self.memory))
        for span in self.spans:
            for offset, length, _ in span.rows:
                (interval,) = self._axis.intervals(self._model, offset, length, literal)
                found.append((interval, span.hold.bytes))
        return found

    def add_held_time(self, memory: int) -> None:
        """Fit bytes times time of its holds into a period: implied, but the engine's relaxation needs it.

        The lengths of holds are sums of waits, so waits alone then show that a period is too short.

        `memory`: most memory of its GPUs, in bytes, as its GPU is not known here.
        """
        graph, limit = self._graph_vars.graph, self._axis.limit
        unit = gcd(*(hold.bytes for hold in self.holds))
        room = (memory - self.memory) // unit if unit else 0
        demands = [hold.bytes // unit for hold in self.holds]
        longest = 2 * limit * (graph.size * graph.job.iterations + 1)
        if demands and max(sum(demands), room) * graph.job.iterations * longest < _MOST_NUMBER:
            taken = sum(demand * span.time(limit) for demand, span in zip(demands, self.spans, strict=True))
            self._model.add(taken <= room * self._axis.later(1))


class _Span:
    """The length of a hold in each iteration: a part within a period, and whole periods besides."""

    def __init__(self, model: cp_model.CpModel, job_vars: TaskGraphVariables, hold: NumberedHold, axis: Axis) -> None:
        self.hold = hold
        self.rows: list[tuple[cp_model.IntVar, cp_model.IntVar, Expression]] = []
        forward = hold.end in job_vars.graph.longest_from(hold.start, [0] * job_vars.graph.size)
        for iteration, row in enumerate(job_vars.starts):
            start, end = row[hold.start], job_vars.end(iteration, hold.end)
            length = model.new_int_var(0, axis.limit, "")
            # Longer than a period, it overlaps copies of itself.
            most = 2 * job_vars.graph.size * job_vars.graph.job.iterations + 1
            periods: Expression = model.new_int_var(0, most, "") if isinstance(axis, ModuloAxis) else 0
            whole = length + axis.limit * periods
            # Without waits that lead from start to end, the end may come first. The memory interval then takes no
            # time, and its length cannot be negative.
            model.add(whole == end - start.start if forward else whole >= end - start.start)
            self.rows.append((start.offset, length, periods))

    def time(self, limit: int) -> Expression:
        """Return how long it lasts in all iterations, in microseconds; `limit` is that of the axis."""
        return sum(length + limit * periods for _, length, periods in self.rows)

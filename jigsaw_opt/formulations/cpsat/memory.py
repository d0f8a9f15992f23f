"""Memory of GPUs: workers and slots while their job is present, holds between blocks (specification: memory, holds).

Jobs are present all the time, unless memory is scarce on the finite horizon, where they may follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.axis import Axis, ModuloAxis
from jigsaw_opt.formulations.cpsat.presence import add_held_capacities, add_memory_in_time, presence_of, worker_on
from jigsaw_opt.formulations.cpsat.variables import InstanceVariables, JobVariables, TaskGraphVariables
from jigsaw_opt.formulations.cpsat_model import CpSatRows
from jigsaw_opt.formulations.timetable.channel import encode_maximum
from jigsaw_opt.problem.compiled.task_graph import NumberedHold

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression

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

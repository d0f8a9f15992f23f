"""What jobs take of a GPU, and what else they hold, while they are present (specification: memory, licences)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

from jigsaw_opt.formulations.cpsat.axis import Axis
from jigsaw_opt.formulations.cpsat.variables import JobVariables, TaskGraphVariables
from jigsaw_opt.formulations.cpsat_model import CpSatRows
from jigsaw_opt.formulations.timetable.channel import encode_maximum
from jigsaw_opt.problem.compiled.operations import Operations
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

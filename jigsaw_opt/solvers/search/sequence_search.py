"""Schedules as the order of all their operations, which keeps most of its worth when some of the jobs go elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from operator import le
from typing import Any

from jigsaw_opt.problem.compiled.timetable import Timetable, assemble, objective_of
from jigsaw_opt.solvers.engines.compiled import Numbers, fastest, integers, run_in_parts
from jigsaw_opt.solvers.engines.magnitude import infinity, orders_fit
from jigsaw_opt.solvers.greedy.flat import FlatGraph, blank_period, decision_in, exchange_scope
from jigsaw_opt.solvers.kernels.cyclic_annealing import CyclicState, anneal_cyclic_sequence
from jigsaw_opt.solvers.kernels.period import Period
from jigsaw_opt.solvers.kernels.randomness import EXPONENTIALS, LARGEST_SEED
from jigsaw_opt.solvers.kernels.sequence import FIXED, SequenceState, predecessors
from jigsaw_opt.solvers.kernels.sequence_annealing import anneal_sequence
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData

_VISITS, _FEW_VISITS = 2_000_000, 50_000
"""Operations visited until work is counted, and between two checks of the clock where Python visits them."""
_STRIDE = 32
"""Operations from one checkpoint to the next, but no fewer than GPUs and links, of which each checkpoint knows all."""


@dataclass(frozen=True, slots=True, eq=False)
class SequencedSchedule:
    """A schedule.

    `sequence`: all operations in the order of their starts; on the cyclic horizon cut anywhere, so that operations that
    stand before what they wait for wait for it in the period before. `level, start`: by operation; on the cyclic
    horizon in one period of all jobs, and an operation before what it waits for is a period too early. `critical_jobs`:
    jobs that its objective hangs on, as far as that is known: the one that ends last, or on the cyclic horizon those on
    its critical circuit.
    """

    assignments: Sequence[Assignment]
    sequence: Numbers
    level: Numbers
    start: Numbers
    value: int
    critical_jobs: Sequence[int]


class SequenceSearch:
    """Anneals the order of operations and who takes which level, while GPUs stay.

    Its kernels are `sequence_annealing` on the finite horizon and `cyclic_annealing` on the cyclic one.

    `size`: number of operations: by job and iteration the blocks by slot, the transfers and the barrier.
    """

    def __init__(self, eligibility: ProblemData, rng: random.Random) -> None:
        self.eligibility, self._rng = eligibility, rng
        self.cyclic = eligibility.operations.horizon == "cyclic"
        kernel = anneal_cyclic_sequence if self.cyclic else anneal_sequence
        self._anneal, own = fastest(kernel, orders_fit(eligibility.operations))
        self._is_compiled, self._exponentials = self._anneal is not kernel, own(EXPONENTIALS)
        self._flat = FlatGraph(eligibility.operations, eligibility.layout, own)
        self._base, self.size = self._flat.base, self._flat.size
        self._exchanges: dict[tuple[int, int, int], list[int]] = {}
        states = self._cyclic_states() if self.cyclic else (self._finite_state(),)
        self._states: tuple[Any, ...] = tuple(map(own, states))

    def given(self, plan: Timetable) -> SequencedSchedule:
        """Return the schedule of a plan, for `anneal` to begin with."""
        eligibility, number = self.eligibility, self.eligibility.number
        places = [[number[name] for name in job.gpus] for job in plan.jobs]
        caps = eligibility.caps(places)
        assignments: list[Assignment] = []
        level: list[int] = []
        start: list[int] = []
        for index, (gpus, timed) in enumerate(zip(places, plan.jobs, strict=True)):
            rows = timed.levels
            assignment = eligibility.planned(index, gpus, rows, caps[index], eligibility.demands[index])
            assignments.append(assignment)
            level += _levels(assignment, rows)
            for iteration in timed.iterations:
                start += [*(operation.start_us for operation in iteration.operations), iteration.end_us]
        # Operations of a job are numbered in the order of their precedences, so those that start together keep it.
        sequence = sorted(range(self.size), key=start.__getitem__)
        if plan.period_us is not None:
            # What starts together with an operation of its job a period later waits for it there.
            period = plan.period_us
            sequence.sort(key=lambda operation: (start[operation] % period, -(start[operation] // period)))
            start = [moment % period for moment in start]
        value = objective_of(eligibility.operations, plan.jobs, plan.period_us)
        return SequencedSchedule(assignments, sequence, level, start, value, [] if self.cyclic else [self._last(start)])

    def rows(self, schedule: SequencedSchedule, index: int) -> list[list[int]]:
        """Return the levels of a job by iteration and slot."""
        level, job = integers(schedule.level), schedule.assignments[index].job
        starts = range(self._base[index], self._base[index + 1], job.slots + len(job.transfers) + 1)
        return [level[start : start + job.slots] for start in starts]

    def moved(self, schedule: SequencedSchedule, changed: Mapping[int, Assignment]) -> SequencedSchedule:
        """Return the order of a schedule with some jobs on other GPUs or at other levels, to be annealed."""
        level = copy(schedule.level)
        for index, own in changed.items():
            level[self._base[index] : self._base[index + 1]] = _levels(own, own.plan.rows)
        assignments = [changed.get(index, old) for index, old in enumerate(schedule.assignments)]
        return replace(schedule, assignments=assignments, level=level)

    def anneal(
        self,
        before: SequencedSchedule,
        assignments: Sequence[Assignment],
        steps: int,
        temperature: float,
        stop: Callable[[int], bool],
        cutoff: float = inf,
    ) -> SequencedSchedule:
        """Return the best schedule that some steps lead to from the order of another one.

        `steps`: number of orders that are tried; at least 1. `temperature`: share of the objective that the first steps
        may lose; it falls to 0. `stop`: called now and then with the number of operations visited since; true ends the
        run. `cutoff`: objective above which a schedule is of no use; the run ends as soon as it is not likely to get
        there.
        """
        self._begin(before, assignments)
        state = self._states[0]

        def run(done: int, count: int) -> tuple[int, int]:
            numbers = done, count, steps, temperature, cutoff
            self._anneal(self._flat.graph, *self._states, *numbers, self._exponentials)
            return int(state.visits[0]), int(state.steps[0])

        few = _VISITS if self._is_compiled else _FEW_VISITS
        run_in_parts(run, steps, _VISITS // self.size, few // self.size, stop)
        sequence, level, start = map(copy, (state.best_sequence, state.best_level, state.best_start))
        if isinstance(state, CyclicState):
            critical = [index for index, on_circuit in enumerate(state.best_critical) if on_circuit]
        else:
            critical = [self._last(start)]
        return SequencedSchedule(assignments, sequence, level, start, int(state.best_value[0]), critical)

    def _begin(self, before: SequencedSchedule, assignments: Sequence[Assignment]) -> None:
        """Copy the schedule that the annealing begins with to its state."""
        state, levels = self._states[0], self._states[-1].level
        state.sequence[:], levels[:] = before.sequence, before.level
        for index, (assignment, old) in enumerate(zip(assignments, before.assignments, strict=True)):
            if self._flat.place(index, assignment):
                self._set_exchange(index, assignment)
            if assignment is not old:
                own = slice(self._base[index], self._base[index + 1])
                kept = assignment.demand is old.demand
                levels[own] = _levels(assignment, _rows(assignment, list(before.level[own]) if kept else []))
        if isinstance(state, CyclicState):
            state.start[:] = before.start
        state.rng[0] = self._rng.randint(1, LARGEST_SEED)

    def timetable(self, schedule: SequencedSchedule) -> Timetable:
        """Return the plan of a schedule."""
        gpus, level, start = self.eligibility.layout.gpus, integers(schedule.level), integers(schedule.start)
        if self.cyclic:
            start = self._unrolled(schedule, start)
        decisions = [
            decision_in(own.job, [gpus[gpu] for gpu in own.gpus], level, start, base)
            for own, base in zip(schedule.assignments, self._base, strict=False)
        ]
        return Timetable(assemble(self.eligibility.operations, decisions), schedule.value if self.cyclic else None)

    def _unrolled(self, schedule: SequencedSchedule, start: list[int]) -> list[int]:
        """Return starts of the operations in one period of each job, whose first one is not before 0."""
        place = [0] * self.size
        for number, operation in enumerate(map(int, schedule.sequence)):
            place[operation] = number
        graph, period = self._flat.graph, schedule.value
        # How many times the cut has been passed, since the cut that the first operations of the job lie behind.
        passed = [0] * self.size
        for index, job in enumerate(self.eligibility.operations.jobs):
            begin, end = self._base[index], self._base[index + 1]
            own = range(begin, end)
            for operation in own:
                _, high, other = predecessors(graph, operation)
                before = int(other if other >= 0 else high - 1)
                passed[operation] = int(place[operation] < place[before]) + (
                    passed[before] if before < operation else 0
                )
            moments = [start[operation] + passed[operation] * period for operation in own]
            first = min(moments[: job.slots])
            start[begin:end] = [moment - first // period * period for moment in moments]
        return start

    def _last(self, start: Numbers) -> int:
        """Return the job that ends last."""
        ends = [start[base - 1] for base in self._base[1:]]
        return max(range(len(ends)), key=ends.__getitem__)

    def _set_exchange(self, index: int, assignment: Assignment) -> None:
        """Set the durations of the transfers of a job by bucket and number of contributors."""
        channel, job = self.eligibility.ring(assignment.job, assignment.gpus), assignment.job
        key = (id(job), channel.rate, channel.latency_us)
        if key not in self._exchanges:
            buckets, counts = [transfer.bucket for transfer in job.transfers], range(1, job.slots + 1)
            self._exchanges[key] = [job.transfer_us(bucket, count, channel) for bucket in buckets for count in counts]
        exchange, at = self._exchanges[key], int(self._flat.graph.exchange_at[index])
        self._flat.graph.exchange[at : at + len(exchange)] = exchange

    def _finite_state(self) -> SequenceState:
        """Return an empty state for the finite horizon."""
        resources = self._flat.resources
        stride = max(_STRIDE, resources)
        lengths = dict.fromkeys(SequenceState._fields, self.size) | {"free": resources, "user": resources}
        lengths |= dict.fromkeys(("checkpoint_free", "checkpoint_user"), (self.size // stride + 1) * resources)
        lengths |= dict.fromkeys(("best_value", "value", "rng", "steps", "visits"), 1)
        return SequenceState(**{name: [0] * length for name, length in lengths.items()})._replace(stride=[stride])

    def _cyclic_states(self) -> tuple[CyclicState, Period]:
        """Return empty states for the cyclic horizon."""
        lengths = dict.fromkeys(CyclicState._fields, self.size) | {"best_critical": len(self._base) - 1}
        lengths |= dict.fromkeys(("best_value", "value", "rng", "steps", "visits", "circuit"), 1)
        state = CyclicState(**{name: [0] * length for name, length in lengths.items()})
        return state, blank_period(self.size, self._flat.resources, infinity(self.eligibility.operations))


def _levels(assignment: Assignment, rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the levels of all operations of a job, given those of its blocks."""
    rest = [0] * (len(assignment.job.transfers) + 1)
    return list(chain.from_iterable([*row, *rest] for row in rows))


def _rows(assignment: Assignment, before: Sequence[int]) -> Sequence[Sequence[int]]:
    """Return the levels of a job by iteration and slot: as they were, where memory admits that.

    Former levels may be empty.
    """
    rows, slots = assignment.plan.rows, assignment.job.slots
    width = slots + len(assignment.job.transfers) + 1
    caps = assignment.caps or [assignment.job.levels] * slots
    old = [[int(level) for level in before[at : at + slots]] for at in range(0, len(before), width)]
    if old and exchange_scope(assignment.job) != FIXED and all(all(map(le, row, caps)) for row in old):
        return old
    if assignment.plan.fixed:
        return rows
    deepest_first = sorted(range(slots), key=lambda slot: -caps[slot])
    return [[level for _, level in sorted(zip(deepest_first, row, strict=True))] for row in rows]

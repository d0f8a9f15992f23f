"""The problem put to CP-SAT straight from its statement, a yardstick for ``jigsaw_opt.formulations.cpsat``.

One literal for each worker and GPU, one optional interval for each block and GPU and for each transfer and link.
It has no inequality that the statement does not have, no symmetry is broken, and it knows neither a bound nor a
first plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING

import cpsat_run
from attempt import Attempt

from jigsaw_opt.formulations.timetable.windows import serial_end
from jigsaw_opt.problem import Channel, Instance, OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ortools.sat.python import cp_model


def unsupported(instance: Instance) -> str | None:
    """A cyclic horizon."""
    return "cyclic horizon" if instance.horizon == "cyclic" else None


def solve(attempt: Attempt) -> None:
    """Build the model and search."""
    model = PlainModel(attempt.operations, serial_end(attempt.operations))
    cpsat_run.run(model.proto, attempt, model.plan)


@dataclass(slots=True)
class PlainJob:
    """Variables of one job: by slot and GPU, by iteration and slot, by iteration and bucket."""

    job: OperationGraph
    on: list[dict[int, cp_model.IntVar]]
    end: cp_model.IntVar
    levels: list[list[dict[int, cp_model.IntVar]]] = field(default_factory=list)
    starts: list[list[cp_model.IntVar]] = field(default_factory=list)
    transfers: list[list[cp_model.IntVar]] = field(default_factory=list)
    channels: dict[Channel, list[cp_model.IntVar]] = field(default_factory=dict)


class PlainModel:
    """The model of a finite instance; no plan worth finding is longer than the horizon."""

    def __init__(self, operations: Operations, horizon_us: int) -> None:
        from ortools.sat.python import cp_model

        self.operations, self.horizon = operations, horizon_us
        self.proto = cp_model.CpModel()
        servers = operations.cluster.servers
        self.gpus = [(s, k) for s, server in enumerate(servers) for k in range(server.gpus)]
        self.on_gpu: list[list[cp_model.IntervalVar]] = [[] for _ in self.gpus]
        self.on_link: list[list[cp_model.IntervalVar]] = [[] for _ in operations.cluster.links]
        self.jobs = [self._job(job) for job in operations.jobs]
        for intervals in (*self.on_gpu, *self.on_link):
            self.proto.add_no_overlap(intervals)
        for g in range(len(self.gpus)):
            self._memory(g)
        self._objective()

    def plan(self, value: Callable[[cp_model.IntVar], int]) -> Timetable:
        """Timetable of a solution, given the value of each variable."""
        decisions = [
            JobDecision(
                [next(self.gpus[g] for g, literal in slot.items() if value(literal)) for slot in job.on],
                [[next(d for d, literal in slot.items() if value(literal)) for slot in row] for row in job.levels],
                [[value(start) for start in row] for row in job.starts],
                [[value(start) for start in row] for row in job.transfers],
            )
            for job in self.jobs
        ]
        return Timetable(assemble(self.operations, decisions))

    def _bools(self, count: int) -> list[cp_model.IntVar]:
        return [self.proto.new_bool_var("") for _ in range(count)]

    def _both(self, first: cp_model.IntVar, second: cp_model.IntVar) -> cp_model.IntVar:
        literal = self.proto.new_bool_var("")
        self.proto.add_bool_or([~first, ~second, literal])
        return literal

    def _moment(self) -> cp_model.IntVar:
        return self.proto.new_int_var(0, self.horizon, "")

    def _type(self, g: int) -> str:
        return self.operations.cluster.servers[self.gpus[g][0]].gpu_type

    def _job(self, job: OperationGraph) -> PlainJob:
        allowed = [g for g in range(len(self.gpus)) if self._type(g) in job.gpu_types]
        it = PlainJob(
            job, [dict(zip(allowed, self._bools(len(allowed)), strict=True)) for _ in job.blocks], self._moment()
        )
        for slot in it.on:
            self.proto.add_exactly_one(slot.values())
        for g in allowed:
            self.proto.add_at_most_one(slot[g] for slot in it.on)
        self._shapes(it)
        barrier: cp_model.LinearExprT = job.release_us
        for i in range(job.iterations):
            end = self._moment() if i < job.iterations - 1 else it.end
            self._iteration(it, barrier, end)
            barrier = end
        self._depth_rule(it)
        return it

    def _shapes(self, job: PlainJob) -> None:
        """One literal for each way to choose the servers in use and those that hold two workers or more."""
        servers = sorted({self.gpus[g][0] for g in job.on[0]})
        count = {s: sum(slot[g] for slot in job.on for g in slot if self.gpus[g][0] == s) for s in servers}
        literals = []
        for workers in _worker_classes(servers, job.job.slots):
            channel = self.operations.routes.channel(workers)
            if channel is None:
                continue
            literal = self.proto.new_bool_var("")
            literals.append(literal)
            job.channels.setdefault(channel, []).append(literal)
            for s in servers:
                low, high = {0: (0, 0), 1: (1, 1), 2: (2, job.job.slots)}[workers.get(s, 0)]
                self.proto.add_linear_constraint(count[s], low, high).only_enforce_if(literal)
        self.proto.add_exactly_one(literals)

    def _iteration(self, job: PlainJob, barrier: cp_model.LinearExprT, end: cp_model.IntVar) -> None:
        levels = [dict(enumerate(self._bools(job.job.levels), 1)) for _ in job.job.blocks]
        starts = [self._moment() for _ in job.job.blocks]
        job.levels.append(levels)
        job.starts.append(starts)
        transfers: list[cp_model.IntVar] = []
        previous = barrier
        for operation in job.job.transfers:
            transfers.append(self._moment())
            self.proto.add(transfers[-1] >= previous)
            previous = self._transfer(job, operation.bucket, levels, transfers[-1])
        job.transfers.append(transfers)
        self.proto.add(end >= previous)
        for slot, start in enumerate(starts):
            self.proto.add_exactly_one(levels[slot].values())
            self.proto.add(start >= barrier)
            self._block(job, slot, levels[slot], start, end, transfers)

    def _block(
        self,
        job: PlainJob,
        slot: int,
        levels: dict[int, cp_model.IntVar],
        start: cp_model.IntVar,
        end: cp_model.IntVar,
        transfers: list[cp_model.IntVar],
    ) -> None:
        size, stop = self._moment(), self._moment()
        self.proto.add(stop == start + size)
        self.proto.add(end >= stop)
        for g, on in job.on[slot].items():
            self.on_gpu[g].append(self.proto.new_optional_interval_var(start, size, stop, on, ""))
            times = job.job.blocks[slot].duration_us[self._type(g)]
            for d, level in levels.items():
                self.proto.add(size == times[d - 1]).only_enforce_if([on, level])
                for transfer, ready in zip(transfers[:d], times, strict=False):
                    self.proto.add(transfer >= start + ready).only_enforce_if([on, level])

    def _transfer(
        self, job: PlainJob, bucket: int, levels: list[dict[int, cp_model.IntVar]], start: cp_model.IntVar
    ) -> cp_model.IntVar:
        """A transfer from `start`; returns its end."""
        counts = self._bools(job.job.slots)
        self.proto.add_exactly_one(counts)
        reached = sum(literal for slot in levels for d, literal in slot.items() if d >= bucket)
        self.proto.add(reached == sum(c * literal for c, literal in enumerate(counts, 1)))
        size, end = self._moment(), self._moment()
        self.proto.add(end == start + size)
        lasting = self.proto.new_bool_var("")
        self.proto.add(size == 0).only_enforce_if(~lasting)
        for channel, shapes in job.channels.items():
            for (c, count), shape in product(enumerate(counts, 1), shapes):
                self.proto.add(size == job.job.transfer_us(bucket, c, channel)).only_enforce_if([count, shape])
        for k, intervals in enumerate(self.on_link):
            shapes = [shape for channel, shapes in job.channels.items() if k in channel.links for shape in shapes]
            intervals.extend(self._on_link(start, size, end, lasting, shape) for shape in shapes)
        return end

    def _on_link(
        self,
        start: cp_model.IntVar,
        size: cp_model.IntVar,
        end: cp_model.IntVar,
        lasting: cp_model.IntVar,
        shape: cp_model.IntVar,
    ) -> cp_model.IntervalVar:
        return self.proto.new_optional_interval_var(start, size, end, self._both(lasting, shape), "")

    def _depth_rule(self, job: PlainJob) -> None:
        rule, deepest = job.job.rule, job.job.levels
        for row in job.levels:
            if rule.multiset is None:
                self.proto.add(sum(slot[deepest] for slot in row) >= rule.min_contributors)
                continue
            for d, count in Counter(rule.multiset).items():
                self.proto.add(sum(slot[d] for slot in row) == count)
        totals = [sum(d * x for row in job.levels for d, x in row[k].items()) for k in range(job.job.slots)]
        self.proto.add(sum(totals) >= rule.min_total)
        if rule.balance is not None:
            for first, second in combinations(totals, 2):
                self.proto.add_linear_constraint(first - second, -rule.balance, rule.balance)

    def _memory(self, g: int) -> None:
        memory = self.operations.cluster.servers[self.gpus[g][0]].gpu_memory
        peak = self.proto.new_int_var(0, memory, "")
        state = []
        for job in self.jobs:
            for k, slot in enumerate(job.on):
                if g not in slot:
                    continue
                state.append(job.job.state_bytes * slot[g])
                for row, (d, size) in product(job.levels, enumerate(job.job.activation_bytes, 1)):
                    # With both literals on the inequality, OR-Tools 9.15 calls feasible instances infeasible.
                    both = self._both(slot[g], row[k][d])
                    self.proto.add(peak >= size).only_enforce_if(both)
        self.proto.add(sum(state) + peak <= memory)

    def _objective(self) -> None:
        if self.operations.objective == "weighted_completion":
            self.proto.minimize(sum(job.job.weight * job.end for job in self.jobs))
            return
        makespan = self._moment()
        for job in self.jobs:
            self.proto.add(makespan >= job.end)
        self.proto.minimize(makespan)


def _worker_classes(servers: list[int], slots: int) -> Iterator[dict[int, int]]:
    """Every choice of no, one, or two and more (as 2) workers on each server that `slots` workers can make."""
    for classes in product(range(3), repeat=len(servers)):
        if sum(classes) == slots or (sum(classes) < slots and 2 in classes):
            yield {s: c for s, c in zip(servers, classes, strict=True) if c}

"""Load smoothing: the loads of GPUs made even by exchanging levels between workers of a job, and GPUs between workers.

Which worker takes the shallow block is free in every iteration, so the fullest GPU hands deep blocks to
emptier ones. Workers also change GPUs within their server, where neither links nor durations change, and jobs of
one worker go to any GPU of the same type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

from jigsaw_opt.problem.memory import needed_bytes
from jigsaw_opt.solvers.greedy.assignment import Assignment
from jigsaw_opt.solvers.search.problem_data import ProblemData

__all__ = ["LoadSmoothing"]


class _LoadExchange(NamedTuple):
    """A change that takes load from the fullest GPU.

    Parameters
    ----------
    peak
        Load of the fuller one of both GPUs after it, in microseconds.
    job, slot
        The worker on the fullest GPU.
    other_job, other_slot
        The worker on the other GPU; -1 where the first one moves into free room.
    iteration
        Where levels are exchanged; -1 where the workers change GPUs.
    gpu
        The other GPU.
    """

    peak: int
    job: int
    slot: int
    other_job: int
    other_slot: int
    iteration: int
    gpu: int


class LoadSmoothing:
    """Placed jobs with the levels of every block.

    Parameters
    ----------
    data
        The instance.
    assignments
        Where every job is.
    levels
        By job and iteration, the level of each slot.
    """

    def __init__(
        self, data: ProblemData, assignments: Sequence[Assignment], levels: Sequence[Sequence[Sequence[int]]]
    ) -> None:
        self.data, self.assignments = data, assignments
        self.levels = [[list(row) for row in rows] for rows in levels]
        self.gpus = [list(assignment.gpus) for assignment in assignments]
        count = len(data.layout.gpus)
        self.load, self.state = [0] * count, [0] * count
        self.on: list[dict[int, int]] = [{} for _ in range(count)]
        for job, assignment in enumerate(assignments):
            for slot, gpu in enumerate(assignment.gpus):
                self.load[gpu] += self._work(job, slot)
                self.state[gpu] += assignment.job.state_bytes
                self.on[gpu][job] = slot

    def run(self, steps: int) -> int:
        """Exchange until the fullest GPU finds no exchange, or for a number of steps; returns how many were made."""
        for step in range(steps):
            fullest = max(range(len(self.load)), key=self.load.__getitem__)
            best = min(self._exchanges(fullest), default=None)
            if best is None or best.peak >= self.load[fullest]:
                return step
            self._make(fullest, best)
        return steps

    def placed(self) -> list[Assignment]:
        """The jobs where they are now, with fixed levels."""
        return [
            self.data.planned(index, gpus, rows, [assignment.job.levels] * len(gpus), assignment.demand)
            for index, (assignment, gpus, rows) in enumerate(zip(self.assignments, self.gpus, self.levels, strict=True))
        ]

    def _work(self, job: int, slot: int) -> int:
        table = self.assignments[job].tables[slot]
        return sum(table[row[slot] - 1] for row in self.levels[job])

    def _exchanges(self, full: int) -> Iterator[_LoadExchange]:
        for job, slot in self.on[full].items():
            if self.assignments[job].job.rule.balance is None and len(self.gpus[job]) > 1:
                yield from self._level_exchanges(full, job, slot)
            yield from self._gpu_exchanges(full, job, slot)

    def _level_exchanges(self, full: int, job: int, slot: int) -> Iterator[_LoadExchange]:
        """Levels of one iteration exchanged with a shallower slot of the same job."""
        tables, gpus = self.assignments[job].tables, self.gpus[job]
        for iteration, row in enumerate(self.levels[job]):
            deep = row[slot]
            for other, shallow in enumerate(row):
                if shallow >= deep or not self._admits(job, gpus[other], deep):
                    continue
                here = self.load[full] - tables[slot][deep - 1] + tables[slot][shallow - 1]
                there = self.load[gpus[other]] + tables[other][deep - 1] - tables[other][shallow - 1]
                yield _LoadExchange(max(here, there), job, slot, job, other, iteration, gpus[other])

    def _gpu_exchanges(self, full: int, job: int, slot: int) -> Iterator[_LoadExchange]:
        """The worker moves to an emptier GPU, or changes places with a worker of less work there."""
        work = self._work(job, slot)
        for gpu in self._rooms(full, job):
            if job in self.on[gpu]:
                continue
            if self._fits(job, slot, gpu, None):
                yield _LoadExchange(max(self.load[full] - work, self.load[gpu] + work), job, slot, -1, -1, -1, gpu)
            for other, other_slot in self.on[gpu].items():
                less = self._work(other, other_slot)
                alone = len(self.gpus[other]) == 1 or self._same_server(full, gpu)
                if less >= work or other in self.on[full] or not alone:
                    continue
                if self._fits(job, slot, gpu, other) and self._fits(other, other_slot, full, job):
                    peak = max(self.load[full] - work + less, self.load[gpu] + work - less)
                    yield _LoadExchange(peak, job, slot, other, other_slot, -1, gpu)

    def _rooms(self, full: int, job: int) -> Sequence[int]:
        """GPUs of the same server; for a job of one worker the emptiest ones of the same type as well."""
        layout = self.data.layout
        inside = [gpu for gpu in layout.on_server[layout.server_of[full]] if gpu != full]
        if len(self.gpus[job]) > 1:
            return inside
        alike = (gpu for gpu, kind in enumerate(layout.type_of) if kind == layout.type_of[full] and gpu != full)
        return [*inside, *sorted(alike, key=self.load.__getitem__)[: self.data.params.candidates.sample]]

    def _same_server(self, one: int, other: int) -> bool:
        server_of = self.data.layout.server_of
        return server_of[one] == server_of[other]

    def _deepest(self, job: int, slot: int) -> int:
        return max(row[slot] for row in self.levels[job])

    def _admits(self, job: int, gpu: int, level: int) -> bool:
        """Whether memory admits a level of a worker that is on the GPU already."""
        size = self.assignments[job].job.activation_bytes[level - 1]
        return self.state[gpu] + size <= self.data.layout.memory[gpu]

    def _fits(self, job: int, slot: int, gpu: int, leaving: int | None) -> bool:
        """Whether a worker fits on a GPU, with all that stay there, once another job's worker has left it."""
        together = [(job, slot), *(worker for worker in self.on[gpu].items() if worker[0] != leaving)]
        return needed_bytes(starmap(self._bytes, together)) <= self.data.layout.memory[gpu]

    def _bytes(self, job: int, slot: int) -> tuple[int, int]:
        """State of a worker, and its activations at its largest level."""
        operations = self.assignments[job].job
        return operations.state_bytes, operations.activation_bytes[self._deepest(job, slot) - 1]

    def _make(self, full: int, exchange: _LoadExchange) -> None:
        if exchange.iteration >= 0:
            row = self.levels[exchange.job][exchange.iteration]
            before = [self._work(exchange.job, slot) for slot in (exchange.slot, exchange.other_slot)]
            row[exchange.slot], row[exchange.other_slot] = row[exchange.other_slot], row[exchange.slot]
            self.load[full] += self._work(exchange.job, exchange.slot) - before[0]
            self.load[exchange.gpu] += self._work(exchange.job, exchange.other_slot) - before[1]
            return
        self._move(exchange.job, exchange.slot, full, exchange.gpu)
        if exchange.other_job >= 0:
            self._move(exchange.other_job, exchange.other_slot, exchange.gpu, full)

    def _move(self, job: int, slot: int, source: int, target: int) -> None:
        work, size = self._work(job, slot), self.assignments[job].job.state_bytes
        for gpu, sign in ((source, -1), (target, 1)):
            self.load[gpu] += sign * work
            self.state[gpu] += sign * size
        del self.on[source][job]
        self.on[target][job] = slot
        self.gpus[job][slot] = target
